//! Answers: labels, boxes, classes of pixels, vectors and pictures.
//!
//! Places are pixels of the picture that was sent.

use std::io::Cursor;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use image::{GrayImage, ImageFormat, RgbImage};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

/// A typed answer.
#[derive(Debug, Clone, PartialEq)]
pub enum TypedAnswer {
    /// Labels with scores.
    Labels(LabelAnswer),
    /// A vector.
    Vector(VectorAnswer),
    /// Boxes, perhaps with masks.
    Boxes(BoxAnswer),
    /// A class for each pixel.
    Classes(ClassAnswer),
    /// A picture.
    Picture(PictureAnswer),
}

/// The kind of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum TypedAnswerKind {
    /// Labels with scores.
    Labels,
    /// A vector.
    Vector,
    /// Boxes, perhaps with masks.
    Boxes,
    /// A class for each pixel.
    Classes,
    /// A picture.
    Picture,
}

impl TypedAnswerKind {
    /// Returns whether an answer can be given as a picture.
    pub fn is_drawn(self) -> bool {
        matches!(self, Self::Boxes | Self::Classes | Self::Picture)
    }

    /// Describes it for people.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Labels => "labels with scores",
            Self::Vector => "a vector",
            Self::Boxes => "boxes in the picture",
            Self::Classes => "a class for each pixel",
            Self::Picture => "a picture",
        }
    }

    /// Returns the JSON Schema of answers.
    pub fn schema(self) -> Json {
        let number = json!({"type": "number"});
        let size = json!({"type": "integer", "minimum": 0});
        let text = json!({"type": "string"});
        let png =
            json!({"type": "string", "contentEncoding": "base64", "contentMediaType": "image/png"});
        let list = |item: Json| json!({"type": "array", "items": item});
        let object = |properties: Json, required: &[&str]| json!({"type": "object", "properties": properties, "required": required});
        match self {
            Self::Labels => {
                let label = json!({"label": text, "score": number, "index": size});
                let label = object(label, &["label", "score", "index"]);
                object(
                    json!({"labels": list(label), "label_source": text}),
                    &["labels", "label_source"],
                )
            }
            Self::Vector => object(json!({"vector": list(number)}), &["vector"]),
            Self::Boxes => {
                let corners = ["xmin", "ymin", "xmax", "ymax"];
                let sides = json!({"xmin": number, "ymin": number, "xmax": number, "ymax": number});
                let found = json!({
                    "label": text, "score": number, "index": size,
                    "box": object(sides, &corners),
                    "mask": png, "mask_origin": list(size.clone()),
                });
                let found = object(found, &["label", "score", "index", "box"]);
                object(
                    json!({"boxes": list(found), "width": size, "height": size, "label_source": text}),
                    &["boxes", "width", "height", "label_source"],
                )
            }
            Self::Classes => {
                let class = json!({"label": text, "index": size, "share": number, "score": number});
                let class = object(class, &["label", "index", "share", "score"]);
                object(
                    json!({"classes": list(class), "mask": png, "width": size, "height": size,
                        "label_source": text}),
                    &["classes", "mask", "width", "height", "label_source"],
                )
            }
            Self::Picture => object(
                json!({"image": png, "width": size, "height": size}),
                &["image", "width", "height"],
            ),
        }
    }
}

/// Labels, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelAnswer {
    /// The labels.
    pub labels: Vec<ScoredLabel>,
    /// The origin of the names.
    pub label_source: String,
}

/// A label with its score.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ScoredLabel {
    /// The label.
    pub label: String,
    /// The score.
    pub score: f32,
    /// Number of the class.
    pub index: usize,
}

/// A vector.
#[derive(Debug, Clone, PartialEq)]
pub struct VectorAnswer {
    /// Its numbers.
    pub vector: Vec<f32>,
}

/// Objects of a picture, best first.
#[derive(Debug, Clone, PartialEq)]
pub struct BoxAnswer {
    /// The objects.
    pub boxes: Vec<DetectedObject>,
    /// Width and height of the picture.
    pub size: [u32; 2],
    /// The origin of the names.
    pub label_source: String,
}

/// An object of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct DetectedObject {
    /// The label of its class.
    pub label: String,
    /// The score.
    pub score: f64,
    /// Number of the class.
    pub index: usize,
    /// Left, top, right, bottom.
    pub corners: [f64; 4],
    /// The pixels of the object.
    pub mask: Option<ObjectMask>,
}

/// The pixels of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectMask {
    /// Position of the mask in the picture.
    pub origin: [u32; 2],
    /// 255 for pixels of the object, otherwise 0.
    pub mask: GrayImage,
}

/// A class for each pixel.
#[derive(Debug, Clone, PartialEq)]
pub struct ClassAnswer {
    /// The numbers of the classes.
    pub mask: GrayImage,
    /// The classes that occur, most pixels first.
    pub classes: Vec<ClassShare>,
    /// The origin of the names.
    pub label_source: String,
}

/// A class of pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ClassShare {
    /// The label.
    pub label: String,
    /// Number of the class.
    pub index: usize,
    /// Share of the pixels, from 0 to 1.
    pub share: f64,
    /// Mean score of these pixels.
    pub score: f64,
}

/// A picture.
#[derive(Debug, Clone, PartialEq)]
pub struct PictureAnswer {
    /// The picture.
    pub picture: RgbImage,
}

impl TypedAnswer {
    /// Converts the answer to JSON; pictures and masks are PNG in base64.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Labels(answer) => json!({
                "labels": answer.labels,
                "label_source": answer.label_source,
            }),
            Self::Vector(answer) => json!({ "vector": answer.vector }),
            Self::Boxes(answer) => json!({
                "boxes": answer.boxes.iter().map(DetectedObject::to_json).collect::<Vec<_>>(),
                "width": answer.size[0],
                "height": answer.size[1],
                "label_source": answer.label_source,
            }),
            Self::Classes(answer) => json!({
                "classes": answer.classes,
                "mask": BASE64.encode(png(&answer.mask)),
                "width": answer.mask.width(),
                "height": answer.mask.height(),
                "label_source": answer.label_source,
            }),
            Self::Picture(answer) => json!({
                "image": BASE64.encode(png(&answer.picture)),
                "width": answer.picture.width(),
                "height": answer.picture.height(),
            }),
        }
    }
}

impl DetectedObject {
    fn to_json(&self) -> Json {
        let [xmin, ymin, xmax, ymax] = self.corners;
        let mut object = json!({
            "label": self.label,
            "score": self.score,
            "index": self.index,
            "box": { "xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax },
        });
        if let Some(ObjectMask { origin, mask }) = &self.mask {
            object["mask"] = json!(BASE64.encode(png(mask)));
            object["mask_origin"] = json!(origin);
        }
        object
    }
}

/// Encodes a picture as PNG.
#[expect(clippy::missing_panics_doc, reason = "memory takes every picture")]
pub fn png<P>(picture: &image::ImageBuffer<P, Vec<u8>>) -> Vec<u8>
where
    P: image::Pixel<Subpixel = u8> + image::PixelWithColorType,
{
    let mut bytes = Cursor::new(Vec::new());
    let written = picture.write_to(&mut bytes, ImageFormat::Png);
    written.expect("memory takes a picture of a valid size");
    bytes.into_inner()
}
