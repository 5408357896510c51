//! Reads requests with a picture: raw bytes, `multipart/form-data`, or JSON with base64.

use ::base64::Engine as _;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream;
use multer::{Constraints, Multipart, SizeLimit};
use serde_json::Value;
use serde_json::value::RawValue;

use pkgtool_media::picture;

use super::super::Refusal;
use super::super::json::{self, shown, unknown_key};
use super::super::tensors::{BASE64, without_data_url};
use super::MediaAnswerForm;

/// Keys of a request as JSON.
const KEYS: &[&str] = &[IMAGE, SETTINGS, ANSWER];

/// The key of the picture, in JSON and in a form.
const IMAGE: &str = "image";

/// The key of the values for the recipe, in JSON.
const SETTINGS: &str = "settings";

/// The key of the answer's media type, in JSON and in a form.
const ANSWER: &str = "answer";

/// Names of the picture's field in a form; a field with a file name is one as well.
const FILE_FIELDS: [&str; 2] = ["file", IMAGE];

/// Maximum number of fields in a form, and the maximum size of one besides the picture, in bytes.
const MAX_FIELDS: usize = 64;
const MAX_FIELD_BYTES: u64 = 64 << 10;

/// A picture to answer by a recipe, not decoded yet.
#[derive(Debug)]
pub(in crate::service) struct MediaRequest {
    /// The encoded picture.
    pub(in crate::service) bytes: Bytes,
    /// The place of the picture in the request, for errors.
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
    /// Reads the picture of a request; `None` if the request has none.
    pub(in crate::service) fn read(
        body: &Bytes,
        media_type: Option<&str>,
    ) -> Result<Option<Self>, Refusal> {
        let media_type = media_type.unwrap_or_default();
        let name = media_type.split(';').next().unwrap_or_default().trim();
        let name = name.to_ascii_lowercase();
        if name == "multipart/form-data" {
            return of_form(body, media_type).map(Some);
        }
        if name.starts_with("image/") || picture::begins_like_one(body) {
            return Ok(Some(Self {
                bytes: body.clone(),
                place: "$".to_owned(),
                options: Vec::new(),
                form: None,
            }));
        }
        if name.starts_with("audio/") || name.starts_with("video/") {
            let message =
                format!("this service takes pictures, not `{name}`: send a PNG, JPEG, WebP or GIF");
            return Err(Refusal::at("$", message));
        }
        of_json(body)
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

fn of_json(body: &[u8]) -> Result<Option<MediaRequest>, Refusal> {
    let text = json::unwrapped(json::text(body)?)?;
    // This avoids parsing large tensors twice.
    if !has_key(&text, IMAGE) {
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
    let Some(image) = member(IMAGE) else {
        return Ok(None);
    };
    if let Some((key, _)) = members
        .iter()
        .find(|(key, _)| !KEYS.contains(&key.as_str()))
    {
        return Err(unknown_key("$", key, KEYS));
    }
    let place = format!("$.{IMAGE}");
    let encoded = json::string(image, &place)?;
    let bytes = BASE64
        .decode(without_data_url(&encoded).as_bytes())
        .map_err(|error| Refusal::at(&place, format!("invalid base64: {error}")))?;
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
        place,
        options: options.collect::<Result<_, _>>()?,
        form: form.transpose()?,
    }))
}

fn of_form(body: &Bytes, media_type: &str) -> Result<MediaRequest, Refusal> {
    let boundary = multer::parse_boundary(media_type)
        .map_err(|error| Refusal::at("Content-Type", error.to_string()))?;
    let limits = SizeLimit::new()
        .whole_stream(body.len() as u64)
        .per_field(body.len() as u64);
    let whole = stream::iter([Ok::<_, std::convert::Infallible>(body.clone())]);
    let constraints = Constraints::new().size_limit(limits);
    let parts = Multipart::with_constraints(whole, boundary, constraints);
    // The stream never waits, since the body is complete.
    let read = fields(parts).now_or_never();
    read.unwrap_or_else(|| Err(Refusal::at("$", "the form is incomplete")))
}

async fn fields(mut parts: Multipart<'_>) -> Result<MediaRequest, Refusal> {
    let wrong = |error: multer::Error| Refusal::at("$", format!("invalid form: {error}"));
    let mut picture: Option<(String, Bytes)> = None;
    let (mut options, mut form) = (Vec::new(), None);
    let mut count = 0;
    while let Some(field) = parts.next_field().await.map_err(wrong)? {
        count += 1;
        if count > MAX_FIELDS {
            let message = format!("the form has more than {MAX_FIELDS} fields");
            return Err(Refusal::at("$", message));
        }
        let name = field.name().unwrap_or_default().to_owned();
        if FILE_FIELDS.contains(&name.as_str()) || field.file_name().is_some() {
            if let Some((first, _)) = &picture {
                let message = format!("the form has two pictures, {} and this one", shown(first));
                return Err(Refusal::at(name, message));
            }
            picture = Some((name, field.bytes().await.map_err(wrong)?));
            continue;
        }
        let text = field.bytes().await.map_err(wrong)?;
        let text = std::str::from_utf8(&text).ok();
        let text = text.filter(|text| text.len() as u64 <= MAX_FIELD_BYTES);
        let text = text.ok_or_else(|| {
            let message = format!("expected a text of at most {MAX_FIELD_BYTES} bytes");
            Refusal::at(&name, message)
        })?;
        if name == ANSWER {
            form = Some(MediaAnswerForm::named(text, &name)?);
            continue;
        }
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        let place = name.clone();
        options.push(RecipeOption { name, value, place });
    }
    let (place, bytes) = picture.ok_or_else(|| {
        let message =
            "the form has no picture: add the field `file`, such as `curl -F file=@photo.jpg`";
        Refusal::at("file", message)
    })?;
    Ok(MediaRequest {
        bytes,
        place,
        options,
        form,
    })
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
        MediaRequest::read(body, Some(media_type))
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
            (form(&[]), FORM, "file", "no picture"),
            (form(&two), FORM, "image", "two pictures"),
            (form(&many), FORM, "$", "more than 64 fields"),
            (
                form(&[("name=\"answer\"", "x")]),
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
            (Bytes::from("x"), "audio/wav", "$", "audio/wav"),
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
