//! Answers: labels, boxes, classes of pixels, vectors, pictures, text, segments, transcripts and speech.
//!
//! Places are pixels of the picture that was sent, times are seconds.

mod runs;
mod sounds;

pub use sounds::{
    SegmentAnswer, SoundSegment, SpeechAnswer, SpokenSegment, SubtitleFormat, TranscriptAnswer,
};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use image::{GrayImage, RgbImage};
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::picture::{PictureFormat, Quad};
use crate::sound::SoundFormat;

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
    /// Lines of text in the picture.
    Lines(LineAnswer),
    /// A text.
    Text(TextAnswer),
    /// Segments of a sound.
    Segments(SegmentAnswer),
    /// The words of a sound.
    Transcript(TranscriptAnswer),
    /// A sound that speaks a text.
    Speech(SpeechAnswer),
    /// Words about a picture.
    Reply(ReplyAnswer),
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
    /// Lines of text in the picture.
    Lines,
    /// A text.
    Text,
    /// Segments of a sound.
    Segments,
    /// The words of a sound.
    Transcript,
    /// A sound that speaks a text.
    Speech,
    /// Words about a picture.
    Reply,
}

impl TypedAnswerKind {
    /// The media type of answers as JSON.
    pub const JSON: &str = "application/json";

    /// Returns the media types in which answers exist, the preferred one first.
    pub fn media_types(self) -> Vec<&'static str> {
        let mut types = vec![Self::JSON];
        if self.is_drawn() {
            types.extend(PictureFormat::ALL.map(PictureFormat::media_type));
        }
        if self == Self::Transcript {
            types.extend(SubtitleFormat::ALL.map(SubtitleFormat::media_type));
        }
        if self == Self::Speech {
            types.extend(SoundFormat::ALL.map(SoundFormat::media_type));
        }
        types
    }

    /// Returns whether an answer can be given as a picture.
    pub fn is_drawn(self) -> bool {
        matches!(
            self,
            Self::Boxes | Self::Classes | Self::Picture | Self::Lines
        )
    }

    /// Describes it for people.
    pub fn summary(self) -> &'static str {
        match self {
            Self::Labels => "labels with scores",
            Self::Vector => "a vector",
            Self::Boxes => "boxes in the picture",
            Self::Classes => "a class for each pixel",
            Self::Picture => "a picture",
            Self::Lines => "lines of text in the picture",
            Self::Text => "a text",
            Self::Segments => "segments of the sound",
            Self::Transcript => "the words of the sound",
            Self::Speech => "speech",
            Self::Reply => "words about the picture",
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
    /// Masks are runs of pixels, as COCO has them, in place of PNG.
    pub runs: bool,
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

/// Words about a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyAnswer {
    /// The words.
    pub text: String,
}

/// Lines of text, in the order of reading.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LineAnswer {
    /// The lines.
    pub lines: Vec<TextLine>,
    /// The texts of all lines, if a model has read them.
    pub text: Option<String>,
    /// Width and height of the picture.
    pub size: [u32; 2],
}

/// A line of text in a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct TextLine {
    /// Its place.
    pub quad: Quad,
    /// The score of the place.
    pub score: f64,
    /// The text, if a model has read it.
    pub read: Option<TextAnswer>,
}

/// A text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextAnswer {
    /// The text; empty if its score is too low.
    pub text: String,
    /// The score.
    pub score: f64,
    /// The origin of the letters.
    pub label_source: String,
}

impl LineAnswer {
    /// Adds the texts of the lines, in their order. Lines without a letter are dropped.
    #[must_use]
    fn with_texts(mut self, texts: Vec<TextAnswer>) -> Self {
        for (line, text) in self.lines.iter_mut().zip(texts) {
            line.read = Some(text);
        }
        let has_letters =
            |line: &TextLine| line.read.as_ref().is_some_and(|it| !it.text.is_empty());
        self.lines.retain(has_letters);
        let texts = self.lines.iter().filter_map(|line| line.read.as_ref());
        let texts: Vec<&str> = texts.map(|it| it.text.as_str()).collect();
        self.text = Some(texts.join("\n"));
        self
    }

    fn to_json(&self) -> Json {
        json!({
            "text": self.text,
            "lines": self.lines.iter().map(TextLine::to_json).collect::<Vec<_>>(),
            "width": self.size[0],
            "height": self.size[1],
        })
    }
}

impl TextLine {
    fn to_json(&self) -> Json {
        let mut line = json!({
            "score": self.score,
            "quad": self.quad.0,
            "box": corners_json(self.quad.bounds()),
        });
        if let Some(read) = &self.read {
            line["text"] = json!(read.text);
            line["text_score"] = json!(read.score);
        }
        line
    }
}

fn corners_json([xmin, ymin, xmax, ymax]: [f64; 4]) -> Json {
    json!({ "xmin": xmin, "ymin": ymin, "xmax": xmax, "ymax": ymax })
}

impl TypedAnswer {
    /// Adds the texts of the lines that it has, if a model has read them.
    #[must_use]
    pub fn with_texts(self, texts: Option<Vec<TextAnswer>>) -> Self {
        match (self, texts) {
            (Self::Lines(lines), Some(texts)) => Self::Lines(lines.with_texts(texts)),
            (answer, _) => answer,
        }
    }

    /// Converts the answer to JSON; pictures and masks are PNG in base64.
    pub fn to_json(&self) -> Json {
        match self {
            Self::Labels(answer) => json!({
                "labels": answer.labels,
                "label_source": answer.label_source,
            }),
            Self::Vector(answer) => json!({ "vector": answer.vector }),
            Self::Boxes(answer) => json!({
                "boxes": answer.boxes.iter().map(|it| it.to_json(answer)).collect::<Vec<_>>(),
                "width": answer.size[0],
                "height": answer.size[1],
                "label_source": answer.label_source,
            }),
            Self::Classes(answer) => json!({
                "classes": answer.classes,
                "mask": png(&answer.mask),
                "width": answer.mask.width(),
                "height": answer.mask.height(),
                "label_source": answer.label_source,
            }),
            Self::Picture(answer) => json!({
                "image": png(&answer.picture),
                "width": answer.picture.width(),
                "height": answer.picture.height(),
            }),
            Self::Lines(answer) => answer.to_json(),
            Self::Segments(answer) => answer.to_json(),
            Self::Transcript(answer) => answer.to_json(),
            Self::Speech(answer) => answer.to_json(),
            Self::Reply(answer) => json!({ "text": answer.text }),
            Self::Text(answer) => json!({
                "text": answer.text,
                "score": answer.score,
                "label_source": answer.label_source,
            }),
        }
    }
}

impl DetectedObject {
    fn to_json(&self, answer: &BoxAnswer) -> Json {
        let mut object = json!({
            "label": self.label,
            "score": self.score,
            "index": self.index,
            "box": corners_json(self.corners),
        });
        if let Some(ObjectMask { origin, mask }) = &self.mask {
            if answer.runs {
                object["rle"] = runs::of_mask(mask, *origin, answer.size);
                return object;
            }
            object["mask"] = json!(png(mask));
            object["mask_origin"] = json!(origin);
        }
        object
    }
}

/// Encodes a picture as PNG in base64.
fn png<P>(picture: &image::ImageBuffer<P, Vec<u8>>) -> String
where
    P: image::Pixel<Subpixel = u8> + image::PixelWithColorType,
{
    let bytes = PictureFormat::Png.encode(picture);
    BASE64.encode(bytes.expect("memory takes a picture of a valid size"))
}
