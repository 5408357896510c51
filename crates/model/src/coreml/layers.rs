//! Counts the parts of models other than ML Programs: layers of neural networks and models of
//! pipelines.
//!
//! Numbers and names come from `Model.proto` and `NeuralNetwork.proto` of coremltools 9. Invariant:
//! the contents of a layer are never read.

use std::collections::BTreeMap;

use super::parts::each_field;
use crate::FormatError;
use crate::executorch::body::ByteRange;
use pkgtool_base::source::Pages;

/// Maximum number of distinct layer kinds that are counted.
const MAX_LAYER_KINDS: usize = 1 << 10;

/// Kinds of models, by the number of their field in `Model`.
const MODEL_KINDS: &[(u64, &str)] = &[
    (200, "pipelineClassifier"),
    (201, "pipelineRegressor"),
    (202, "pipeline"),
    (300, "glmRegressor"),
    (301, "supportVectorRegressor"),
    (302, "treeEnsembleRegressor"),
    (303, "neuralNetworkRegressor"),
    (304, "bayesianProbitRegressor"),
    (400, "glmClassifier"),
    (401, "supportVectorClassifier"),
    (402, "treeEnsembleClassifier"),
    (403, "neuralNetworkClassifier"),
    (404, "kNearestNeighborsClassifier"),
    (500, "neuralNetwork"),
    (501, "itemSimilarityRecommender"),
    (502, "mlProgram"),
    (555, "customModel"),
    (556, "linkedModel"),
    (560, "classConfidenceThresholding"),
    (600, "oneHotEncoder"),
    (601, "imputer"),
    (602, "featureVectorizer"),
    (603, "dictVectorizer"),
    (604, "scaler"),
    (606, "categoricalMapping"),
    (607, "normalizer"),
    (609, "arrayFeatureExtractor"),
    (610, "nonMaximumSuppression"),
    (900, "identity"),
    (2000, "textClassifier"),
    (2001, "wordTagger"),
    (2002, "visionFeaturePrint"),
    (2003, "soundAnalysisPreprocessing"),
    (2004, "gazetteer"),
    (2005, "wordEmbedding"),
    (2006, "audioFeaturePrint"),
    (3000, "serializedModel"),
];

/// Kinds of layers, by the number of their field in `NeuralNetworkLayer`.
const LAYER_KINDS: &[(u64, &str)] = &[
    (100, "convolution"),
    (120, "pooling"),
    (130, "activation"),
    (140, "innerProduct"),
    (150, "embedding"),
    (160, "batchnorm"),
    (165, "mvn"),
    (170, "l2normalize"),
    (175, "softmax"),
    (180, "lrn"),
    (190, "crop"),
    (200, "padding"),
    (210, "upsample"),
    (211, "resizeBilinear"),
    (212, "cropResize"),
    (220, "unary"),
    (230, "add"),
    (231, "multiply"),
    (240, "average"),
    (245, "scale"),
    (250, "bias"),
    (260, "max"),
    (261, "min"),
    (270, "dot"),
    (280, "reduce"),
    (290, "loadConstant"),
    (300, "reshape"),
    (301, "flatten"),
    (310, "permute"),
    (320, "concat"),
    (330, "split"),
    (340, "sequenceRepeat"),
    (345, "reorganizeData"),
    (350, "slice"),
    (400, "simpleRecurrent"),
    (410, "gru"),
    (420, "uniDirectionalLSTM"),
    (430, "biDirectionalLSTM"),
    (500, "custom"),
    (600, "copy"),
    (605, "branch"),
    (615, "loop"),
    (620, "loopBreak"),
    (625, "loopContinue"),
    (635, "rangeStatic"),
    (640, "rangeDynamic"),
    (660, "clip"),
    (665, "ceil"),
    (670, "floor"),
    (680, "sign"),
    (685, "round"),
    (700, "exp2"),
    (710, "sin"),
    (715, "cos"),
    (720, "tan"),
    (730, "asin"),
    (735, "acos"),
    (740, "atan"),
    (750, "sinh"),
    (755, "cosh"),
    (760, "tanh"),
    (770, "asinh"),
    (775, "acosh"),
    (780, "atanh"),
    (790, "erf"),
    (795, "gelu"),
    (815, "equal"),
    (820, "notEqual"),
    (825, "lessThan"),
    (827, "lessEqual"),
    (830, "greaterThan"),
    (832, "greaterEqual"),
    (840, "logicalOr"),
    (845, "logicalXor"),
    (850, "logicalNot"),
    (855, "logicalAnd"),
    (865, "modBroadcastable"),
    (870, "minBroadcastable"),
    (875, "maxBroadcastable"),
    (880, "addBroadcastable"),
    (885, "powBroadcastable"),
    (890, "divideBroadcastable"),
    (895, "floorDivBroadcastable"),
    (900, "multiplyBroadcastable"),
    (905, "subtractBroadcastable"),
    (920, "tile"),
    (925, "stack"),
    (930, "gather"),
    (935, "scatter"),
    (940, "gatherND"),
    (945, "scatterND"),
    (950, "softmaxND"),
    (952, "gatherAlongAxis"),
    (954, "scatterAlongAxis"),
    (960, "reverse"),
    (965, "reverseSeq"),
    (975, "splitND"),
    (980, "concatND"),
    (985, "transpose"),
    (995, "sliceStatic"),
    (1000, "sliceDynamic"),
    (1005, "slidingWindows"),
    (1015, "topK"),
    (1020, "argMin"),
    (1025, "argMax"),
    (1040, "embeddingND"),
    (1045, "batchedMatmul"),
    (1065, "getShape"),
    (1070, "loadConstantND"),
    (1080, "fillLike"),
    (1085, "fillStatic"),
    (1090, "fillDynamic"),
    (1100, "broadcastToLike"),
    (1105, "broadcastToStatic"),
    (1110, "broadcastToDynamic"),
    (1120, "squeeze"),
    (1125, "expandDims"),
    (1130, "flattenTo2D"),
    (1135, "reshapeLike"),
    (1140, "reshapeStatic"),
    (1145, "reshapeDynamic"),
    (1150, "rankPreservingReshape"),
    (1155, "constantPad"),
    (1170, "randomNormalLike"),
    (1175, "randomNormalStatic"),
    (1180, "randomNormalDynamic"),
    (1190, "randomUniformLike"),
    (1195, "randomUniformStatic"),
    (1200, "randomUniformDynamic"),
    (1210, "randomBernoulliLike"),
    (1215, "randomBernoulliStatic"),
    (1220, "randomBernoulliDynamic"),
    (1230, "categoricalDistribution"),
    (1250, "reduceL1"),
    (1255, "reduceL2"),
    (1260, "reduceMax"),
    (1265, "reduceMin"),
    (1270, "reduceSum"),
    (1275, "reduceProd"),
    (1280, "reduceMean"),
    (1285, "reduceLogSum"),
    (1290, "reduceSumSquare"),
    (1295, "reduceLogSumExp"),
    (1313, "whereNonZero"),
    (1315, "matrixBandPart"),
    (1320, "lowerTriangular"),
    (1325, "upperTriangular"),
    (1330, "whereBroadcastable"),
    (1350, "layerNormalization"),
    (1400, "nonMaximumSuppression"),
    (1450, "oneHot"),
    (1455, "cumSum"),
    (1460, "clampedReLU"),
    (1461, "argSort"),
    (1465, "pooling3d"),
    (1466, "globalPooling3d"),
    (1470, "sliceBySize"),
    (1471, "convolution3d"),
];

/// Returns the kind of a model for a field number.
pub(super) fn model_kind(number: u64) -> Option<&'static str> {
    let found = MODEL_KINDS.binary_search_by_key(&number, |(known, _)| *known);
    found.ok().map(|at| MODEL_KINDS[at].1)
}

/// Returns the kind of a layer. Fields below 100 are its name, inputs and outputs.
fn layer_kind(number: u64) -> Option<String> {
    if number < 100 {
        return None;
    }
    let found = LAYER_KINDS.binary_search_by_key(&number, |(known, _)| *known);
    Some(found.map_or_else(
        |_| format!("layer {number}"),
        |at| LAYER_KINDS[at].1.to_owned(),
    ))
}

/// Counts the parts of a model: `neuralNetwork::convolution`, `pipeline::neuralNetwork`, or just
/// `model::treeEnsembleClassifier`.
pub(super) fn count_parts(
    pages: &Pages<'_>,
    kind: &str,
    range: ByteRange,
) -> Result<BTreeMap<String, u64>, FormatError> {
    let mut counts = BTreeMap::new();
    let mut count = |name: String| {
        if counts.len() >= MAX_LAYER_KINDS && !counts.contains_key(&name) {
            return Err(FormatError::too_many(MAX_LAYER_KINDS, "kinds of layers"));
        }
        *counts.entry(name).or_insert(0) += 1;
        Ok(())
    };
    let is_pipeline = kind.starts_with("pipeline");
    if !is_pipeline && !kind.starts_with("neuralNetwork") {
        count(format!("model::{kind}"))?;
        return Ok(counts);
    }
    // Pipelines for classifiers and regressors wrap the actual pipeline in their first field.
    let inner = kind != "pipeline" && is_pipeline;
    let mut ranges = vec![range];
    if inner {
        ranges = inside(pages, range)?;
    }
    for range in ranges {
        for part in inside(pages, range)? {
            each_field(pages, part, "layer", |field| {
                let name = if is_pipeline {
                    model_kind(field.number).map(|name| format!("pipeline::{name}"))
                } else {
                    layer_kind(field.number).map(|name| format!("neuralNetwork::{name}"))
                };
                match name.filter(|_| field.bytes.is_some()) {
                    Some(name) => count(name),
                    None => Ok(()),
                }
            })?;
        }
    }
    Ok(counts)
}

/// Returns the byte ranges of the messages in the first field of a message.
fn inside(pages: &Pages<'_>, range: ByteRange) -> Result<Vec<ByteRange>, FormatError> {
    /// Maximum number of layers, or of models in a pipeline.
    const MAX: usize = 1 << 17;
    let mut found = Vec::new();
    each_field(pages, range, "layers", |part| {
        if part.number == 1
            && let Some(bytes) = part.bytes
        {
            if found.len() >= MAX {
                return Err(FormatError::too_many(MAX, "layers"));
            }
            found.push(bytes);
        }
        Ok(())
    })?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_order() {
        for table in [MODEL_KINDS, LAYER_KINDS] {
            assert!(table.is_sorted_by_key(|(number, _)| *number));
        }
        assert_eq!(model_kind(502), Some("mlProgram"));
        assert_eq!(model_kind(2), None);
        assert_eq!(layer_kind(140).as_deref(), Some("innerProduct"));
        assert_eq!(layer_kind(141).as_deref(), Some("layer 141"));
    }
}
