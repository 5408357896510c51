//! The form of an answer: JSON, the picture with the answer drawn over it, subtitles, or a sound.

use pkgtool_media::answer::{SubtitleFormat, TypedAnswerKind};
use pkgtool_media::picture::PictureFormat;
use pkgtool_media::sound::SoundFormat;

use super::super::Refusal;

/// The media type of answers as JSON.
const JSON: &str = TypedAnswerKind::JSON;

/// Types of an `Accept` header that JSON satisfies.
const ANY: [&str; 3] = ["*/*", "application/*", JSON];

/// The form of an answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::service) enum MediaAnswerForm {
    /// Typed JSON.
    #[default]
    Json,
    /// A picture.
    Picture(PictureFormat),
    /// Subtitles.
    Subtitles(SubtitleFormat),
    /// A sound.
    Sound(SoundFormat),
}

impl MediaAnswerForm {
    /// Returns the form with this media type, which a request names at `place`.
    pub(super) fn named(media_type: &str, place: &str) -> Result<Self, Refusal> {
        Self::of(media_type).ok_or_else(|| unknown(media_type, place))
    }

    /// Returns the form that an `Accept` header prefers. A header without a known type means JSON, unless it
    /// asks for a picture or a sound only.
    pub(in crate::service) fn accepted(header: &str) -> Result<Self, Refusal> {
        let mut best: Option<(f32, Self)> = None;
        let mut wants_media = false;
        for range in header.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default().to_ascii_lowercase();
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok());
            let quality: f32 = quality.unwrap_or(1.0);
            let is_media = ["image/", "audio/"]
                .iter()
                .any(|start| name.starts_with(start));
            wants_media |= is_media && quality > 0.0;
            let form = match name.as_str() {
                "image/*" => Some(Self::Picture(PictureFormat::Png)),
                "audio/*" => Some(Self::Sound(SoundFormat::Wav)),
                name if ANY.contains(&name) => Some(Self::Json),
                name => Self::of(name),
            };
            if let Some(form) = form.filter(|_| quality > 0.0)
                && best.is_none_or(|(other, _)| quality > other)
            {
                best = Some((quality, form));
            }
        }
        match best {
            Some((_, form)) => Ok(form),
            None if wants_media => Err(unknown(header, "Accept")),
            None => Ok(Self::Json),
        }
    }

    /// Checks that answers of this kind exist in this form.
    pub(in crate::service) fn check(self, kind: TypedAnswerKind) -> Result<(), Refusal> {
        if kind.media_types().contains(&self.media_type()) {
            return Ok(());
        }
        let message = format!(
            "this service answers with {}: the answer exists as {}",
            kind.summary(),
            kind.media_types().join(" or ")
        );
        Err(Refusal::at("$", message))
    }

    /// Returns all forms.
    fn all() -> impl Iterator<Item = Self> {
        let pictures = PictureFormat::ALL.map(Self::Picture).into_iter();
        let subtitles = SubtitleFormat::ALL.map(Self::Subtitles);
        let sounds = SoundFormat::ALL.map(Self::Sound);
        std::iter::once(Self::Json).chain(pictures.chain(subtitles).chain(sounds))
    }

    /// Returns its media type.
    fn media_type(self) -> &'static str {
        match self {
            Self::Json => JSON,
            Self::Picture(format) => format.media_type(),
            Self::Subtitles(format) => format.media_type(),
            Self::Sound(format) => format.media_type(),
        }
    }

    fn of(media_type: &str) -> Option<Self> {
        Self::all().find(|form| media_type.eq_ignore_ascii_case(form.media_type()))
    }
}

fn unknown(found: &str, place: &str) -> Refusal {
    let names: Vec<&str> = MediaAnswerForm::all()
        .map(MediaAnswerForm::media_type)
        .collect();
    let message = format!(
        "unknown form of the answer {}: expected {}",
        super::super::json::shown(found),
        names.join(", ")
    );
    Refusal::at(place, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PNG: MediaAnswerForm = MediaAnswerForm::Picture(PictureFormat::Png);
    const JPEG: MediaAnswerForm = MediaAnswerForm::Picture(PictureFormat::Jpeg);

    #[test]
    fn the_preferred_known_type_decides() {
        for (header, expected) in [
            ("", MediaAnswerForm::Json),
            ("*/*", MediaAnswerForm::Json),
            (
                "text/html, application/xml;q=0.9, */*;q=0.8",
                MediaAnswerForm::Json,
            ),
            ("application/json", MediaAnswerForm::Json),
            ("image/png", PNG),
            ("IMAGE/PNG", PNG),
            ("image/*", PNG),
            ("image/avif, image/jpeg;q=0.5", JPEG),
            (
                "image/png;q=0.2, application/json;q=0.5",
                MediaAnswerForm::Json,
            ),
            ("image/png;q=0, */*", MediaAnswerForm::Json),
            ("image/jpeg, image/png", JPEG),
        ] {
            assert_eq!(MediaAnswerForm::accepted(header), Ok(expected), "{header}");
        }
        let wave = MediaAnswerForm::Sound(SoundFormat::Wav);
        assert_eq!(MediaAnswerForm::accepted("audio/*"), Ok(wave));
        assert!(MediaAnswerForm::accepted("audio/mpeg").is_err());
        let refusal = MediaAnswerForm::accepted("image/webp").expect_err("no such form");
        assert!(refusal.message.contains("image/png"), "{refusal}");
        assert!(MediaAnswerForm::named("text/plain", "answer").is_err());
        assert!(JPEG.check(TypedAnswerKind::Labels).is_err());
        assert!(JPEG.check(TypedAnswerKind::Boxes).is_ok());
    }
}
