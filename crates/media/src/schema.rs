//! JSON Schemas of answers and of the values of recipes, for documents of APIs.

use serde_json::{Value as Json, json};

use crate::answer::TypedAnswerKind;
use crate::recipe::ParameterKind;
use crate::trained::TrainedLabels;

impl TypedAnswerKind {
    /// Returns the JSON Schema of answers.
    pub fn schema(self) -> Json {
        let [number, size, text] =
            ["number", "integer", "string"].map(|name| json!({"type": name}));
        let png =
            json!({"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"});
        match self {
            Self::Labels => {
                let label = all(&[("label", &text), ("score", &number), ("index", &size)]);
                all(&[("labels", &list(&label)), ("label_source", &text)])
            }
            Self::Vector => all(&[("vector", &list(&number))]),
            Self::Boxes => {
                let mut object = all(&[
                    ("label", &text),
                    ("score", &number),
                    ("index", &size),
                    ("box", &corners()),
                ]);
                object["properties"]["mask"] = png;
                object["properties"]["mask_origin"] = list(&size);
                object["properties"]["rle"] = all(&[("size", &list(&size)), ("counts", &text)]);
                all(&[
                    ("boxes", &list(&object)),
                    ("width", &size),
                    ("height", &size),
                    ("label_source", &text),
                ])
            }
            Self::Classes => {
                let class = all(&[
                    ("label", &text),
                    ("index", &size),
                    ("share", &number),
                    ("score", &number),
                ]);
                all(&[
                    ("classes", &list(&class)),
                    ("mask", &png),
                    ("width", &size),
                    ("height", &size),
                    ("label_source", &text),
                ])
            }
            Self::Picture => all(&[("image", &png), ("width", &size), ("height", &size)]),
            Self::Lines => {
                let mut line = all(&[
                    ("score", &number),
                    ("quad", &list(&list(&number))),
                    ("box", &corners()),
                ]);
                line["properties"]["text"] = text;
                line["properties"]["text_score"] = number;
                let whole = json!({"type": ["string", "null"]});
                all(&[
                    ("text", &whole),
                    ("lines", &list(&line)),
                    ("width", &size),
                    ("height", &size),
                ])
            }
            Self::Segments => {
                let segment = all(&["start", "end", "score"].map(|name| (name, &number)));
                all(&[
                    ("segments", &list(&segment)),
                    ("speech", &number),
                    ("duration", &number),
                ])
            }
            Self::Transcript => {
                let names = [
                    "avg_logprob",
                    "compression_ratio",
                    "no_speech_prob",
                    "temperature",
                    "start",
                    "end",
                ];
                let mut segment = all(&names.map(|name| (name, &number)));
                segment["properties"]["text"] = text.clone();
                segment["properties"]["tokens"] = list(&size);
                all(&[
                    ("text", &text),
                    ("language", &text),
                    ("duration", &number),
                    ("segments", &list(&segment)),
                ])
            }
            Self::Speech => {
                let sound = json!({"type": "string", "contentEncoding": "base64", "contentMediaType": "audio/wav"});
                all(&[
                    ("audio", &sound),
                    ("media_type", &text),
                    ("sampling_rate", &size),
                    ("duration", &number),
                    ("phonemes", &text),
                ])
            }
            Self::Reply => all(&[("text", &text)]),
            Self::Text => all(&[("text", &text), ("score", &number), ("label_source", &text)]),
        }
    }
}

impl ParameterKind {
    /// Returns the JSON Schema of values.
    pub fn schema(self) -> Json {
        let number = json!({"type": "number"});
        match self {
            Self::Number(least, most) => {
                json!({"type": "number", "minimum": least, "maximum": most})
            }
            Self::Whole(least, most) => {
                json!({"type": "integer", "minimum": least, "maximum": most})
            }
            Self::Choice(words) => json!({"enum": words}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Word => json!({"type": "string", "maxLength": 64}),
            Self::Text => json!({"type": "string", "maxLength": 4096}),
            Self::Channels => {
                let three = json!({"type": "array", "items": number, "minItems": 3, "maxItems": 3});
                json!({"anyOf": [number, three]})
            }
            Self::Labels => {
                json!({"anyOf": [{"type": "string"}, list(&json!({"type": "string"}))]})
            }
        }
    }
}

impl TrainedLabels {
    /// Returns the JSON Schema of answers.
    pub fn schema(&self) -> Json {
        let [number, index, flag] =
            ["number", "integer", "boolean"].map(|name| json!({"type": name}));
        let names = json!({"enum": *self.names});
        let mut members = vec![("label", &names), ("score", &number), ("index", &index)];
        let several = self.decision.map(|decision| decision.multi_label);
        if several == Some(true) {
            members.push(("holds", &flag));
        }
        let labels = list(&all(&members));
        if several == Some(false) {
            return all(&[("labels", &labels), ("abstains", &flag)]);
        }
        all(&[("labels", &labels)])
    }
}

fn list(item: &Json) -> Json {
    json!({"type": "array", "items": item})
}

/// Returns the schema of an object with all of these members.
fn all(members: &[(&str, &Json)]) -> Json {
    let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
    let properties = members
        .iter()
        .map(|(name, schema)| ((*name).to_owned(), (*schema).clone()));
    let properties: serde_json::Map<String, Json> = properties.collect();
    json!({"type": "object", "properties": properties, "required": names})
}

fn corners() -> Json {
    let number = json!({"type": "number"});
    all(&["xmin", "ymin", "xmax", "ymax"].map(|side| (side, &number)))
}
