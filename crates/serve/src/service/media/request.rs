//! Reads requests with a picture, a sound or a text: raw bytes, `multipart/form-data`, or JSON (base64 of a picture or a
//! sound).

use ::base64::Engine as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream;
use multer::{Constraints, Multipart, SizeLimit};
use serde_json::Value;
use serde_json::value::RawValue;

use pkgtool_media::MediaKind;

use super::super::Refusal;
use super::super::json::{self, shown, unknown_key};
use super::super::tensors::{takes_no_pictures, without_data_url};
use super::MediaAnswerForm;
use pkgtool_text::chat::BASE64;

/// Keys of a request as JSON.
const KEYS: &[&str] = &[IMAGE, AUDIO, SETTINGS, ANSWER];
const TEXT_KEYS: &[&str] = &[TEXT, PHONEMES, SETTINGS, ANSWER];

/// The key of the picture, in JSON and in a form.
const IMAGE: &str = "image";

/// The key of the sound, in JSON and in a form.
const AUDIO: &str = "audio";

/// The keys of a text to speak, and of its phonemes, in JSON and in a form.
const TEXT: &str = "text";
const PHONEMES: &str = "phonemes";

/// The key of the values for the recipe, in JSON.
const SETTINGS: &str = "settings";

/// The key of the answer's media type, in JSON and in a form.
const ANSWER: &str = "answer";

/// Name of the field of a picture or a sound in a form; a field with a file name is one as well.
const FILE: &str = "file";

/// Maximum number of fields in a form, and the maximum size of one besides the file, in bytes.
const MAX_FIELDS: usize = 64;
const MAX_FIELD_BYTES: u64 = 64 << 10;

/// A picture, a sound or a text to answer by a recipe, not decoded yet.
#[derive(Debug)]
pub(in crate::service) struct MediaRequest {
    /// The encoded picture or sound, or the text.
    pub(in crate::service) bytes: Bytes,
    /// Its kind, as the request states it.
    kind: Option<MediaKind>,
    /// True if the text is phonemes.
    pub(in crate::service) phonemes: bool,
    /// Its place in the request, for errors.
    pub(in crate::service) place: String,
    /// Values that override the recipe's.
    pub(in crate::service) options: Vec<RecipeOption>,
    /// The form of the answer, if the body names one.
    pub(in crate::service) form: Option<MediaAnswerForm>,
}

/// A value that overrides a recipe's.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::service) struct RecipeOption {
    /// Its name.
    pub(in crate::service) name: String,
    /// The value.
    pub(in crate::service) value: Value,
    /// Its place in the request, for errors.
    pub(in crate::service) place: String,
}

impl MediaRequest {
    /// Reads the picture, the sound or the text of a request; `None` if the request has none. `takes` is the kind that
    /// the service takes: other services get JSON as `text/plain` as well.
    pub(in crate::service) fn read(
        body: &Bytes,
        media_type: Option<&str>,
        takes: Option<MediaKind>,
    ) -> Result<Option<Self>, Refusal> {
        let speaks = takes == Some(MediaKind::Text);
        let media_type = media_type.unwrap_or_default();
        let name = media_type.split(';').next().unwrap_or_default().trim();
        let name = name.to_ascii_lowercase();
        if name == "multipart/form-data" {
            return of_form(body, media_type, speaks).map(Some);
        }
        let is_text = speaks && name.starts_with("text/");
        let kind = MediaKind::of_media_type(&name);
        let kind = kind.or_else(|| MediaKind::of_bytes(body));
        let Some(kind) = kind.or_else(|| is_text.then_some(MediaKind::Text)) else {
            return of_json(body, speaks);
        };
        Ok(Some(Self {
            bytes: body.clone(),
            kind: Some(kind),
            phonemes: false,
            place: "$".to_owned(),
            options: Vec::new(),
            form: None,
        }))
    }

    /// Checks that it is what the service takes.
    pub(in crate::service) fn check(&self, takes: Option<MediaKind>) -> Result<(), Refusal> {
        let refusal = |message: String| Err(Refusal::at(self.place.clone(), message));
        let Some(takes) = takes else {
            return match self.kind {
                Some(MediaKind::Sound) => refusal(
                    "this service does not take sounds: it lacks a capability for sounds; give tensors in `inputs`"
                        .to_owned(),
                ),
                _ => Err(takes_no_pictures(self.place.clone())),
            };
        };
        match self.kind {
            Some(kind) if kind != takes => refusal(format!(
                "this service takes a {}, not a {}: send {}",
                takes.noun(),
                kind.noun(),
                takes.formats()
            )),
            _ => takes.check(&self.bytes).or_else(refusal),
        }
    }
}

impl RecipeOption {
    /// Reads a member of the JSON object at `within`.
    pub(in crate::service) fn of_json(
        (name, value): (String, &RawValue),
        within: &str,
    ) -> Result<Self, Refusal> {
        let place = format!("{within}.{name}");
        let value = serde_json::from_str(value.get())
            .map_err(|error| Refusal::at(&place, format!("invalid value: {error}")))?;
        Ok(Self { name, value, place })
    }
}

/// Returns whether a text has this key of a JSON object at any depth.
fn has_key(text: &str, key: &str) -> bool {
    let quoted = format!("\"{key}\"");
    let mut rests = text
        .match_indices(&quoted)
        .map(|(at, found)| &text[at + found.len()..]);
    rests.any(|rest| rest.trim_ascii_start().starts_with(':'))
}

fn of_json(body: &[u8], speaks: bool) -> Result<Option<MediaRequest>, Refusal> {
    let text = json::unwrapped(json::text(body)?)?;
    let keys = if speaks { TEXT_KEYS } else { KEYS };
    // This avoids parsing large tensors twice.
    if !keys[..2].iter().any(|key| has_key(&text, key)) {
        return Ok(None);
    }
    let Ok(members) = json::members(&text, "$") else {
        // The parser of tensors reports the fault.
        return Ok(None);
    };
    let member = |wanted: &str| {
        let found = members.iter().find(|(key, _)| key == wanted);
        found.map(|(_, value)| *value)
    };
    let (key, given) = match (member(keys[0]), member(keys[1])) {
        (None, None) => return Ok(None),
        (Some(given), None) => (keys[0], given),
        (None, Some(given)) => (keys[1], given),
        (Some(_), Some(_)) => {
            let message = format!("expected `{}` or `{}`, got both", keys[0], keys[1]);
            return Err(Refusal::at("$", message));
        }
    };
    if let Some((key, _)) = members
        .iter()
        .find(|(key, _)| !keys.contains(&key.as_str()))
    {
        return Err(unknown_key("$", key, keys));
    }
    let place = format!("$.{key}");
    let given = json::string(given, &place)?;
    let bytes = if speaks {
        given.into_owned().into_bytes()
    } else {
        let bytes = BASE64.decode(without_data_url(&given).as_bytes());
        bytes.map_err(|error| Refusal::at(&place, format!("invalid base64: {error}")))?
    };
    let form = member(ANSWER).map(|value| {
        let place = format!("$.{ANSWER}");
        MediaAnswerForm::named(&json::string(value, &place)?, &place)
    });
    let within = format!("$.{SETTINGS}");
    let settings = member(SETTINGS).map_or_else(
        || Ok(Vec::new()),
        |settings| json::members(settings.get(), &within),
    )?;
    let options = settings.into_iter();
    let options = options.map(|member| RecipeOption::of_json(member, &within));
    Ok(Some(MediaRequest {
        bytes: bytes.into(),
        kind: kind_of(key),
        phonemes: key == PHONEMES,
        place,
        options: options.collect::<Result<_, _>>()?,
        form: form.transpose()?,
    }))
}

/// Returns the kind that a key means.
fn kind_of(key: &str) -> Option<MediaKind> {
    match key {
        IMAGE => Some(MediaKind::Picture),
        AUDIO => Some(MediaKind::Sound),
        TEXT | PHONEMES => Some(MediaKind::Text),
        _ => None,
    }
}

fn of_form(body: &Bytes, media_type: &str, speaks: bool) -> Result<MediaRequest, Refusal> {
    let mut fields = FormFields::read(body, media_type)?;
    let (place, bytes) = if speaks && fields.file.is_none() {
        fields.one_text()?
    } else {
        fields.one_file()?
    };
    let texts = fields.texts;
    let (mut options, mut form) = (Vec::new(), None);
    for (name, text) in texts {
        if name == ANSWER {
            form = Some(MediaAnswerForm::named(&text, &name)?);
            continue;
        }
        let value = serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text));
        let place = name.clone();
        options.push(RecipeOption { name, value, place });
    }
    Ok(MediaRequest {
        bytes,
        kind: kind_of(&place),
        phonemes: place == PHONEMES,
        place,
        options,
        form,
    })
}

/// The fields of a form with at most one file.
#[derive(Debug)]
pub struct FormFields {
    /// Name and bytes of the file.
    pub file: Option<(String, Bytes)>,
    /// Names and texts of the other fields.
    pub texts: Vec<(String, String)>,
}

impl FormFields {
    /// Reads the form of a body whose media type is `media_type`.
    pub fn read(body: &Bytes, media_type: &str) -> Result<Self, Refusal> {
        let boundary = multer::parse_boundary(media_type)
            .map_err(|error| Refusal::at("Content-Type", error.to_string()))?;
        let limits = SizeLimit::new()
            .whole_stream(body.len() as u64)
            .per_field(body.len() as u64);
        let whole = stream::iter([Ok::<_, std::convert::Infallible>(body.clone())]);
        let constraints = Constraints::new().size_limit(limits);
        let parts = Multipart::with_constraints(whole, boundary, constraints);
        // The stream never waits, since the body is complete.
        let read = Self::of_parts(parts).now_or_never();
        read.unwrap_or_else(|| Err(Refusal::at("$", "the form is incomplete")))
    }

    async fn of_parts(mut parts: Multipart<'_>) -> Result<Self, Refusal> {
        let wrong = |error: multer::Error| Refusal::at("$", format!("invalid form: {error}"));
        let mut file: Option<(String, Bytes)> = None;
        let mut texts = Vec::new();
        let mut count = 0;
        while let Some(field) = parts.next_field().await.map_err(wrong)? {
            count += 1;
            if count > MAX_FIELDS {
                let message = format!("the form has more than {MAX_FIELDS} fields");
                return Err(Refusal::at("$", message));
            }
            let name = field.name().unwrap_or_default().to_owned();
            if [FILE, IMAGE, AUDIO].contains(&name.as_str()) || field.file_name().is_some() {
                if let Some((first, _)) = &file {
                    let message = format!("the form has two files, {} and this one", shown(first));
                    return Err(Refusal::at(name, message));
                }
                file = Some((name, field.bytes().await.map_err(wrong)?));
                continue;
            }
            let text = field.bytes().await.map_err(wrong)?;
            let text = std::str::from_utf8(&text).ok();
            let text = text.filter(|text| text.len() as u64 <= MAX_FIELD_BYTES);
            let text = text.ok_or_else(|| {
                let message = format!("expected a text of at most {MAX_FIELD_BYTES} bytes");
                Refusal::at(&name, message)
            })?;
            texts.push((name, text.to_owned()));
        }
        Ok(Self { file, texts })
    }

    /// Takes the text to speak.
    fn one_text(&mut self) -> Result<(String, Bytes), Refusal> {
        let is_text = |(name, _): &(String, _)| [TEXT, PHONEMES].contains(&name.as_str());
        let place = self.texts.iter().position(is_text).ok_or_else(|| {
            let message =
                "the form has no text: add the field `text`, such as `curl -F text=Hello`";
            Refusal::at(TEXT, message)
        })?;
        let (name, text) = self.texts.remove(place);
        Ok((name, text.into()))
    }

    /// Takes the file.
    pub fn one_file(&mut self) -> Result<(String, Bytes), Refusal> {
        self.file.take().ok_or_else(|| {
            let message =
                "the form has no file: add the field `file`, such as `curl -F file=@photo.jpg`";
            Refusal::at(FILE, message)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FORM: &str = "multipart/form-data; boundary=xx";

    fn form(parts: &[(&str, &str)]) -> Bytes {
        let parts = parts.iter().map(|(head, value)| {
            format!("--xx\r\nContent-Disposition: form-data; {head}\r\n\r\n{value}\r\n")
        });
        let body: String = parts.collect();
        Bytes::from(body + "--xx--\r\n")
    }

    fn read(body: &Bytes, media_type: &str) -> Result<Option<MediaRequest>, Refusal> {
        MediaRequest::read(body, Some(media_type), None)
    }

    #[test]
    fn all_forms_give_the_same_picture() {
        let png = b"\x89PNG\r\n\x1a\nrest".to_vec();
        let text = BASE64.encode(&png);
        let raw = Bytes::from(png.clone());
        let url = json!({ "image": format!("data:image/png;base64,{text}") }).to_string();
        let object = json!({"image": text}).to_string();
        let twice = json!(object).to_string();
        // The picture is in the middle of a long body.
        let labels = vec!["label"; 2000];
        let last = format!(
            "{{\"settings\": {}, {}, \"answer\": \"image/png\"}}",
            json!({ "labels": labels }),
            object.trim_matches(['{', '}'])
        );
        for (body, media_type) in [
            (raw.clone(), "image/png"),
            (raw.clone(), "application/x-www-form-urlencoded"),
            (raw, ""),
            (
                Bytes::from(json!({"image": text}).to_string()),
                "application/json",
            ),
            (Bytes::from(url), ""),
            (Bytes::from(twice), ""),
            (Bytes::from(last), ""),
        ] {
            let given = read(&body, media_type).expect("valid").expect("a picture");
            assert_eq!(given.bytes, png, "{media_type}");
        }
        for body in [
            "{\"inputs\": []}",
            "{\"image_base64\": \"AA==\"}",
            "[",
            "{}",
        ] {
            assert!(read(&Bytes::from(body), "").expect("no picture").is_none());
        }
    }

    #[test]
    fn a_form_has_the_picture_and_values() {
        let body = form(&[
            ("name=\"threshold\"", "0.5"),
            ("name=\"photo\"; filename=\"a.png\"", "bytes"),
            ("name=\"resize\"", "crop"),
            ("name=\"answer\"", "image/png"),
        ]);
        let given = read(&body, FORM).expect("valid").expect("a picture");
        assert_eq!((&*given.bytes, &*given.place), (&b"bytes"[..], "photo"));
        let values: Vec<_> = given
            .options
            .iter()
            .map(|it| (&*it.name, &it.value))
            .collect();
        assert_eq!(
            values,
            [("threshold", &json!(0.5)), ("resize", &json!("crop"))]
        );
        assert!(given.form.is_some_and(|form| form != MediaAnswerForm::Json));
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        let two = [("name=\"file\"", "a"), ("name=\"image\"", "b")];
        let many: Vec<_> = (0..80).map(|_| ("name=\"a\"", "1")).collect();
        for (body, media_type, place, part) in [
            (form(&[]), FORM, "file", "no file"),
            (form(&two), FORM, "image", "two files"),
            (form(&many), FORM, "$", "more than 64 fields"),
            (
                form(&[("name=\"file\"", "a"), ("name=\"answer\"", "x")]),
                FORM,
                "answer",
                "image/png",
            ),
            (Bytes::from("x"), FORM, "$", "invalid form"),
            (
                Bytes::from("x"),
                "multipart/form-data",
                "Content-Type",
                "boundary",
            ),
            (
                Bytes::from("{\"image\": 1}"),
                "",
                "$.image",
                "expected a string",
            ),
            (Bytes::from("{\"image\": \"%\"}"), "", "$.image", "base64"),
            (
                Bytes::from("{\"image\": \"\", \"x\": 1}"),
                "",
                "$.x",
                "unknown key",
            ),
            (
                Bytes::from("{\"image\": \"\", \"settings\": 1}"),
                "",
                "$.settings",
                "an object",
            ),
        ] {
            let refusal = read(&body, media_type).expect_err(part);
            assert_eq!(refusal.place.as_deref(), Some(place), "{refusal}");
            assert!(refusal.message.contains(part), "{refusal}");
        }
        // Truncated at every byte, a form is refused or complete.
        let whole = form(&[("name=\"file\"", "abc"), ("name=\"a\"", "1")]);
        for end in 0..whole.len() {
            let _ = read(&whole.slice(..end), FORM);
        }
    }
}
