//! The cases of `schema.rs`: one edit of a valid file and the expected finding, in the order of the
//! specification's tables.

/// One change to a valid file.
#[derive(Debug)]
pub(super) enum Edit {
    /// Sets the value at a JSON Pointer to this JSON.
    Set(&'static str, &'static str),
    /// Removes the member at a JSON Pointer.
    Remove(&'static str),
}

/// An edit and the only finding that it causes.
#[derive(Debug)]
pub(super) struct Case {
    /// The edit.
    pub(super) edit: Edit,
    /// Code of the finding; empty if the edit is valid.
    pub(super) code: &'static str,
    /// JSON Pointer of the finding.
    pub(super) pointer: &'static str,
    /// Message of the finding.
    pub(super) message: &'static str,
}

const fn set(pointer: &'static str, json: &'static str) -> Edit {
    Edit::Set(pointer, json)
}

const fn remove(pointer: &'static str) -> Edit {
    Edit::Remove(pointer)
}

impl Edit {
    const fn accepted(self) -> Case {
        self.found("", "", "")
    }

    const fn refused(self, pointer: &'static str, message: &'static str) -> Case {
        self.found("PKG004", pointer, message)
    }

    const fn found(self, code: &'static str, pointer: &'static str, message: &'static str) -> Case {
        Case {
            edit: self,
            code,
            pointer,
            message,
        }
    }
}

pub(super) const CASES_OF_A_CONFIG: &[Case] = &[
    // The file.
    set("", "[1]").refused("", "expected an object, found an array"),
    set("", r#""x""#).refused("", r#"expected an object, found the string "x""#),
    set("", "3").refused("", "expected an object, found 3"),
    set("", "null").refused("", "expected an object, found null"),
    set("", "true").refused("", "expected an object, found true"),
    set("/extra", "1").refused("/extra", "unknown key `extra`"),
    set("/Model", r#""tiny""#).refused("/Model", "unknown key `Model`"),
    // $schema.
    remove("/$schema").refused("", "the file lacks `$schema`"),
    set("/$schema", "null").refused("/$schema", "expected a string, found null"),
    set("/$schema", "1").refused("/$schema", "expected a string, found 1"),
    set("/$schema", r#""no uri""#).refused("/$schema", r#""no uri" is not a URI"#),
    set("/$schema", r#""""#).refused("/$schema", r#""" is not a URI"#),
    set("/$schema", r#""https://example.com/other.json""#).accepted(),
    // model.
    remove("/model").refused("", "the file lacks `model`"),
    set("/model", "null").refused("/model", "expected a string, found null"),
    set("/model", "7").refused("/model", "expected a string, found 7"),
    set("/model", r#"["a"]"#).refused("/model", "expected a string, found an array"),
    set("/model", r#""""#).refused("/model", r#""" is not a token"#),
    set("/model", r#""Tiny""#).refused("/model", r#""Tiny" is not a token"#),
    set("/model", r#""tiny-1""#).refused("/model", r#""tiny-1" is not a token"#),
    set("/model", r#""tiny 1""#).refused("/model", r#""tiny 1" is not a token"#),
    set("/model", r#""tiny.1""#).refused("/model", r#""tiny.1" is not a token"#),
    set("/model", r#""t\u00efny""#).refused("/model", r#""tïny" is not a token"#),
    set("/model", r#""tiny\n""#).refused("/model", r#""tiny\n" is not a token"#),
    // family.
    remove("/family").refused("", "the file lacks `family`"),
    set("/family", "null").refused("/family", "expected a string, found null"),
    set("/family", "7").refused("/family", "expected a string, found 7"),
    set("/family", r#"["a"]"#).refused("/family", "expected a string, found an array"),
    set("/family", r#""""#).refused("/family", r#""" is not a token"#),
    set("/family", r#""Tiny""#).refused("/family", r#""Tiny" is not a token"#),
    set("/family", r#""tiny-1""#).refused("/family", r#""tiny-1" is not a token"#),
    set("/family", r#""tiny 1""#).refused("/family", r#""tiny 1" is not a token"#),
    set("/family", r#""tiny.1""#).refused("/family", r#""tiny.1" is not a token"#),
    set("/family", r#""t\u00efny""#).refused("/family", r#""tïny" is not a token"#),
    set("/family", r#""tiny\n""#).refused("/family", r#""tiny\n" is not a token"#),
    set("/family", r#""a_1""#).accepted(),
    // size.
    remove("/size").accepted(),
    set("/size", "null").refused("/size", "expected a string, found null"),
    set("/size", "7").refused("/size", "expected a string, found 7"),
    set("/size", r#"["a"]"#).refused("/size", "expected a string, found an array"),
    set("/size", r#""""#).refused("/size", r#""" is not a token"#),
    set("/size", r#""Tiny""#).refused("/size", r#""Tiny" is not a token"#),
    set("/size", r#""tiny-1""#).refused("/size", r#""tiny-1" is not a token"#),
    set("/size", r#""tiny 1""#).refused("/size", r#""tiny 1" is not a token"#),
    set("/size", r#""tiny.1""#).refused("/size", r#""tiny.1" is not a token"#),
    set("/size", r#""t\u00efny""#).refused("/size", r#""tïny" is not a token"#),
    set("/size", r#""tiny\n""#).refused("/size", r#""tiny\n" is not a token"#),
    set("/size", r#""a_1""#).accepted(),
    // capabilities.
    remove("/capabilities").refused("", "the file lacks `capabilities`"),
    set("/capabilities", "null").refused("/capabilities", "expected an array, found null"),
    set("/capabilities", r#""vision""#).refused("/capabilities", r#"expected an array, found the string "vision""#),
    set("/capabilities", "{}").refused("/capabilities", "expected an array, found an object"),
    set("/capabilities", "[]").refused("/capabilities", "must have at least 1 item"),
    set("/capabilities", r#"["vision", "vision"]"#).refused("/capabilities/1", r#""vision" is already in the list"#),
    set("/capabilities", r#"["fishing"]"#).refused("/capabilities/0", r#""fishing" is not allowed here"#),
    set("/capabilities", r#"[""]"#).refused("/capabilities/0", r#""" is not allowed here"#),
    set("/capabilities", r#"["Vision"]"#).refused("/capabilities/0", r#""Vision" is not allowed here"#),
    set("/capabilities", "[1]").refused("/capabilities/0", "1 is not allowed here"),
    set("/capabilities", "[null]").refused("/capabilities/0", "null is not allowed here"),
    set("/capabilities", r#"["text-generation"]"#).accepted(),
    set("/capabilities", r#"["vision", "speech-to-text", "text-to-speech", "classification", "object-detection", "semantic-segmentation", "instance-segmentation", "style-transfer", "image-embedding", "image-generation", "voice-activity-detection", "text-detection", "text-recognition", "text-generation", "text-embedding"]"#).accepted(),
    // backend.
    remove("/backend").refused("", "the file lacks `backend`"),
    set("/backend", r#""XNNPACK""#).refused("/backend", r#""XNNPACK" is not allowed here"#),
    set("/backend", r#""cpu""#).refused("/backend", r#""cpu" is not allowed here"#),
    set("/backend", r#""""#).refused("/backend", r#""" is not allowed here"#),
    set("/backend", "null").refused("/backend", "null is not allowed here"),
    set("/backend", "1").refused("/backend", "1 is not allowed here"),
    // license.
    remove("/license").refused("", "the file lacks `license`"),
    set("/license", "null").refused("/license", "expected a string, found null"),
    set("/license", "{}").refused("/license", "expected a string, found an object"),
    set("/license", r#""""#).refused("/license", "must not be empty"),
    // tokenizer.
    remove("/tokenizer").accepted(),
    set("/tokenizer", "null").refused("/tokenizer", "expected a string, found null"),
    set("/tokenizer", "1").refused("/tokenizer", "expected a string, found 1"),
    set("/tokenizer", r#""""#).found("PKG016", "/tokenizer", "the reference is empty"),
    // tokenizer_config.
    remove("/tokenizer_config").accepted(),
    set("/tokenizer_config", "null").refused("/tokenizer_config", "expected a string, found null"),
    set("/tokenizer_config", "1").refused("/tokenizer_config", "expected a string, found 1"),
    set("/tokenizer_config", r#""""#).found("PKG016", "/tokenizer_config", "the reference is empty"),
    // variants.
    remove("/variants").refused("", "the file lacks `variants`"),
    set("/variants", "null").refused("/variants", "expected an array, found null"),
    set("/variants", "{}").refused("/variants", "expected an array, found an object"),
    set("/variants", r#""x""#).refused("/variants", r#"expected an array, found the string "x""#),
    set("/variants", "[]").refused("/variants", "must have at least 1 item"),
    set("/variants/0", "null").refused("/variants/0", "expected an object, found null"),
    set("/variants/0", "1").refused("/variants/0", "expected an object, found 1"),
    set("/variants/0", r#""x""#).refused("/variants/0", r#"expected an object, found the string "x""#),
    set("/variants/0", "[]").refused("/variants/0", "expected an object, found an array"),
    set("/variants/0/extra", "1").refused("/variants/0/extra", "unknown key `extra`"),
    set("/variants/0/quantized", "true").found("PKG005", "/variants/0/quantized", "`quantized` is a field of an earlier revision of the format"),
    set("/variants/1/default", "true").found("PKG005", "/variants/1/default", "`default` is a field of an earlier revision of the format"),
    set("/quantized", "true").refused("/quantized", "unknown key `quantized`"),
    // precision.
    remove("/variants/0/precision").refused("/variants/0", "variant 0 lacks `precision`"),
    set("/variants/0/precision", "null").refused("/variants/0/precision", "expected a string, found null"),
    set("/variants/0/precision", "32").refused("/variants/0/precision", "expected a string, found 32"),
    set("/variants/0/precision", r#""""#).refused("/variants/0/precision", r#""" is not a token"#),
    set("/variants/0/precision", r#""FP32""#).refused("/variants/0/precision", r#""FP32" is not a token"#),
    set("/variants/0/precision", r#""fp-32""#).refused("/variants/0/precision", r#""fp-32" is not a token"#),
    set("/variants/0/precision", r#""fp8""#).found("PKG008", "/variants/0/precision", "`fp8` is not in the precision list"),
    // file and components.
    remove("/variants/0/file").found("PKG007", "/variants/0", "the variant has neither `file` nor `components`"),
    set("/variants/0/file", "null").found("PKG007", "/variants/0", "the variant has neither `file` nor `components`"),
    set("/variants/0/file", r#""""#).refused("/variants/0/file", "must not be empty"),
    set("/variants/0/file", "1").refused("/variants/0/file", "expected null or a string, found 1"),
    set("/variants/0/file", "{}").refused("/variants/0/file", "expected null or a string, found an object"),
    set("/variants/0/file", "[]").refused("/variants/0/file", "expected null or a string, found an array"),
    set("/variants/0/file", r#""other.pte""#).found("PKG015", "/variants/0/file", "`other.pte` does not exist"),
    set("/variants/1/file", r#""tiny_xnnpack_int8.pte""#).found("PKG007", "/variants/1/components", "the variant has both `file` and `components`"),
    remove("/variants/1/file").accepted(),
    remove("/variants/1/components").found("PKG007", "/variants/1", "the variant has neither `file` nor `components`"),
    set("/variants/1/components", "{}").refused("/variants/1/components", "must have at least 1 entry"),
    set("/variants/1/components", "null").refused("/variants/1/components", "expected an object, found null"),
    set("/variants/1/components", r#""x""#).refused("/variants/1/components", r#"expected an object, found the string "x""#),
    set("/variants/1/components", "[]").refused("/variants/1/components", "expected an object, found an array"),
    set("/variants/1/components/encoder", "null").refused("/variants/1/components/encoder", "expected a string, found null"),
    set("/variants/1/components/encoder", "5").refused("/variants/1/components/encoder", "expected a string, found 5"),
    set("/variants/1/components/encoder", "{}").refused("/variants/1/components/encoder", "expected a string, found an object"),
    set("/variants/1/components/encoder", r#""""#).found("PKG016", "/variants/1/components/encoder", "the reference is empty"),
    set("/variants/0", r#"{"precision": "fp32", "fil": "tiny_xnnpack_fp32.pte"}"#).refused("/variants/0/fil", "unknown key `fil`"),
    set("/variants/1", r#"{"precision": "int8", "component": {"encoder": "tiny_encoder_xnnpack_int8.pte"}, "methods": {"encoder": {"forward": {"inputs": [], "outputs": []}}}}"#).refused("/variants/1/component", "unknown key `component`"),
    // size_bytes.
    remove("/variants/0/size_bytes").accepted(),
    set("/variants/0/size_bytes", "-1").refused("/variants/0/size_bytes", "must be at least 0, found -1"),
    set("/variants/0/size_bytes", "1.5").refused("/variants/0/size_bytes", "expected an integer, found 1.5"),
    set("/variants/0/size_bytes", r#""3""#).refused("/variants/0/size_bytes", r#"expected an integer, found the string "3""#),
    set("/variants/0/size_bytes", "null").refused("/variants/0/size_bytes", "expected an integer, found null"),
    set("/variants/0/size_bytes", "[]").refused("/variants/0/size_bytes", "expected an integer, found an array"),
    set("/variants/0/size_bytes", "2576.0").accepted(),
    set("/variants/0/size_bytes", "2.576e3").accepted(),
    set("/variants/0/size_bytes", "1").found("PKG019", "/variants/0/size_bytes", "`size_bytes` is 1, but the file has 2576 bytes"),
    // methods.
    remove("/variants/0/methods").accepted(),
    set("/variants/0/methods", "{}").refused("/variants/0/methods", "must have at least 1 entry"),
    set("/variants/0/methods", "null").refused("/variants/0/methods", "expected an object, found null"),
    set("/variants/0/methods", "[]").refused("/variants/0/methods", "expected an object, found an array"),
    set("/variants/0/methods", r#""x""#).refused("/variants/0/methods", r#"expected an object, found the string "x""#),
    remove("/variants/1/methods").accepted(),
    set("/variants/1/methods", "{}").refused("/variants/1/methods", "must have at least 1 entry"),
    set("/variants/1/methods", "null").refused("/variants/1/methods", "expected an object, found null"),
    set("/variants/1/methods", "[]").refused("/variants/1/methods", "expected an object, found an array"),
    set("/variants/1/methods", r#""x""#).refused("/variants/1/methods", r#"expected an object, found the string "x""#),
    set("/variants/1/methods/encoder", "{}").refused("/variants/1/methods/encoder", "must have at least 1 entry"),
    set("/variants/1/methods/encoder", "null").refused("/variants/1/methods/encoder", "expected an object, found null"),
    set("/variants/1/methods/encoder", "[]").refused("/variants/1/methods/encoder", "expected an object, found an array"),
    set("/variants/1/methods/encoder/forward", "null").refused("/variants/1/methods/encoder/forward", "expected an object, found null"),
    set("/variants/1/methods/encoder/forward", "3").refused("/variants/1/methods/encoder/forward", "expected an object, found 3"),
    set("/variants/1/methods/vae", r#"{"forward": {"inputs": [], "outputs": []}}"#).found("PKG012", "/variants/1/methods/vae", "the variant has no component `vae`"),
    set("/variants/1/methods/forward", r#"{"inputs": [], "outputs": []}"#).found("PKG011", "/variants/1/methods/forward", "`forward` is a method signature where a component's name is expected"),
    set("/variants/0/methods", r#"{"encoder": {"forward": {"inputs": [], "outputs": []}}}"#).found("PKG011", "/variants/0/methods/encoder", "`encoder` contains methods, but those of a single-file variant are not nested"),
    set("/variants/0/methods/forward", "null").refused("/variants/0/methods/forward", "expected an object, found null"),
    set("/variants/0/methods/forward", "[]").refused("/variants/0/methods/forward", "expected an object, found an array"),
    set("/variants/0/methods/forward", "1").refused("/variants/0/methods/forward", "expected an object, found 1"),
    // Method signatures.
    remove("/variants/0/methods/forward/inputs").refused("/variants/0/methods/forward", "`forward` lacks `inputs`"),
    set("/variants/0/methods/forward/inputs", "null").refused("/variants/0/methods/forward/inputs", "expected an array, found null"),
    set("/variants/0/methods/forward/inputs", r#""x""#).refused("/variants/0/methods/forward/inputs", r#"expected an array, found the string "x""#),
    set("/variants/0/methods/forward/inputs", "[]").accepted(),
    remove("/variants/0/methods/forward/outputs").refused("/variants/0/methods/forward", "`forward` lacks `outputs`"),
    set("/variants/0/methods/forward/outputs", "null").refused("/variants/0/methods/forward/outputs", "expected an array, found null"),
    set("/variants/0/methods/forward/outputs", r#""x""#).refused("/variants/0/methods/forward/outputs", r#"expected an array, found the string "x""#),
    set("/variants/0/methods/forward/outputs", "[]").accepted(),
    set("/variants/0/methods/forward/inputs", "{}").refused("/variants/0/methods/forward/inputs", "expected an array, found an object"),
    set("/variants/0/methods/forward/extra", "[]").refused("/variants/0/methods/forward/extra", "unknown key `extra`"),
    set("/variants/0/methods/forward/inputs/0", "null").refused("/variants/0/methods/forward/inputs/0", "expected an object, found null"),
    set("/variants/0/methods/forward/inputs/0", "1").refused("/variants/0/methods/forward/inputs/0", "expected an object, found 1"),
    set("/variants/0/methods/forward/inputs/0", "[]").refused("/variants/0/methods/forward/inputs/0", "expected an object, found an array"),
    // Tensor specs.
    remove("/variants/0/methods/forward/inputs/0/shape").refused("/variants/0/methods/forward/inputs/0", "input 0 lacks `shape`"),
    remove("/variants/0/methods/forward/inputs/0/dtype").refused("/variants/0/methods/forward/inputs/0", "input 0 lacks `dtype`"),
    remove("/variants/0/methods/forward/inputs/0/name").accepted(),
    remove("/variants/0/methods/forward/outputs/0/dtype").refused("/variants/0/methods/forward/outputs/0", "output 0 lacks `dtype`"),
    set("/variants/0/methods/forward/inputs/0/extra", "1").refused("/variants/0/methods/forward/inputs/0/extra", "unknown key `extra`"),
    set("/variants/0/methods/forward/inputs/0/names", r#""x""#).refused("/variants/0/methods/forward/inputs/0/names", "unknown key `names`"),
    set("/variants/0/methods/forward/inputs/0/name", r#""""#).refused("/variants/0/methods/forward/inputs/0/name", "must not be empty"),
    set("/variants/0/methods/forward/inputs/0/name", "null").refused("/variants/0/methods/forward/inputs/0/name", "expected a string, found null"),
    set("/variants/0/methods/forward/inputs/0/name", "1").refused("/variants/0/methods/forward/inputs/0/name", "expected a string, found 1"),
    set("/variants/0/methods/forward/inputs/0/shape", "null").refused("/variants/0/methods/forward/inputs/0/shape", "expected an array, found null"),
    set("/variants/0/methods/forward/inputs/0/shape", r#""2x8""#).refused("/variants/0/methods/forward/inputs/0/shape", r#"expected an array, found the string "2x8""#),
    set("/variants/0/methods/forward/inputs/0/shape", "2").refused("/variants/0/methods/forward/inputs/0/shape", "expected an array, found 2"),
    set("/variants/0/methods/forward/inputs/0/shape", "[]").accepted(),
    set("/variants/0/methods/forward/inputs/0/shape", "[-1, 0]").accepted(),
    set("/variants/0/methods/forward/inputs/0/shape", "[2.0, 8]").accepted(),
    set("/variants/0/methods/forward/inputs/0/shape", "[2, -2]").found("PKG014", "/variants/0/methods/forward/inputs/0/shape/1", "invalid dimension -2"),
    set("/variants/0/methods/forward/inputs/0/shape/1", "null").refused("/variants/0/methods/forward/inputs/0/shape/1", "expected an integer, found null"),
    set("/variants/0/methods/forward/inputs/0/shape/1", r#""8""#).refused("/variants/0/methods/forward/inputs/0/shape/1", r#"expected an integer, found the string "8""#),
    set("/variants/0/methods/forward/inputs/0/shape/1", "1.5").refused("/variants/0/methods/forward/inputs/0/shape/1", "expected an integer, found 1.5"),
    set("/variants/0/methods/forward/inputs/0/shape/1", "[]").refused("/variants/0/methods/forward/inputs/0/shape/1", "expected an integer, found an array"),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""float""#).refused("/variants/0/methods/forward/inputs/0/dtype", r#""float" is not allowed here"#),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""Float32""#).refused("/variants/0/methods/forward/inputs/0/dtype", r#""Float32" is not allowed here"#),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""""#).refused("/variants/0/methods/forward/inputs/0/dtype", r#""" is not allowed here"#),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""uint16""#).refused("/variants/0/methods/forward/inputs/0/dtype", r#""uint16" is not allowed here"#),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""int4""#).refused("/variants/0/methods/forward/inputs/0/dtype", r#""int4" is not allowed here"#),
    set("/variants/0/methods/forward/inputs/0/dtype", "null").refused("/variants/0/methods/forward/inputs/0/dtype", "null is not allowed here"),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""bool""#).accepted(),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""int8""#).accepted(),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""int16""#).accepted(),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""int32""#).accepted(),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""int64""#).accepted(),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""uint8""#).accepted(),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""float16""#).accepted(),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""float64""#).accepted(),
    set("/variants/0/methods/forward/inputs/0/dtype", r#""bfloat16""#).accepted(),
];

pub(super) const CASES_OF_A_LIST: &[Case] = &[
    // The file.
    set("", "[1]").refused("", "expected an object, found an array"),
    set("", r#""x""#).refused("", r#"expected an object, found the string "x""#),
    set("", "3").refused("", "expected an object, found 3"),
    set("", "null").refused("", "expected an object, found null"),
    set("/extra", "1").refused("/extra", "unknown key `extra`"),
    set("/unquantized", r#"["a"]"#).refused("/unquantized", "unknown key `unquantized`"),
    // $schema.
    remove("/$schema").accepted(),
    set("/$schema", "null").refused("/$schema", "expected a string, found null"),
    set("/$schema", "1").refused("/$schema", "expected a string, found 1"),
    set("/$schema", r#""""#).accepted(),
    // description.
    remove("/description").accepted(),
    set("/description", "null").refused("/description", "expected a string, found null"),
    set("/description", "1").refused("/description", "expected a string, found 1"),
    set("/description", r#""""#).accepted(),
    // quantized.
    remove("/quantized").refused("", "the file lacks `quantized`"),
    set("/quantized", "null").refused("/quantized", "expected an array, found null"),
    set("/quantized", r#""x""#).refused("/quantized", r#"expected an array, found the string "x""#),
    set("/quantized", "{}").refused("/quantized", "expected an array, found an object"),
    set("/quantized", "[]").refused("/quantized", "must have at least 1 item"),
    set("/quantized", r#"["w1", "w1"]"#).refused("/quantized/1", r#""w1" is already in the list"#),
    set("/quantized", r#"[""]"#).refused("/quantized/0", r#""" is not a token"#),
    set("/quantized", r#"["FP4"]"#).refused("/quantized/0", r#""FP4" is not a token"#),
    set("/quantized", r#"["4-bit"]"#).refused("/quantized/0", r#""4-bit" is not a token"#),
    set("/quantized/0", "null").refused("/quantized/0", "expected a string, found null"),
    set("/quantized/0", "4").refused("/quantized/0", "expected a string, found 4"),
    // non_quantized.
    remove("/non_quantized").refused("", "the file lacks `non_quantized`"),
    set("/non_quantized", "null").refused("/non_quantized", "expected an array, found null"),
    set("/non_quantized", r#""x""#).refused(
        "/non_quantized",
        r#"expected an array, found the string "x""#,
    ),
    set("/non_quantized", "{}").refused("/non_quantized", "expected an array, found an object"),
    set("/non_quantized", "[]").refused("/non_quantized", "must have at least 1 item"),
    set("/non_quantized", r#"["w1", "w1"]"#)
        .refused("/non_quantized/1", r#""w1" is already in the list"#),
    set("/non_quantized", r#"[""]"#).refused("/non_quantized/0", r#""" is not a token"#),
    set("/non_quantized", r#"["FP4"]"#).refused("/non_quantized/0", r#""FP4" is not a token"#),
    set("/non_quantized", r#"["4-bit"]"#).refused("/non_quantized/0", r#""4-bit" is not a token"#),
    set("/non_quantized/0", "null").refused("/non_quantized/0", "expected a string, found null"),
    set("/non_quantized/0", "4").refused("/non_quantized/0", "expected a string, found 4"),
    // Both.
    set("/non_quantized/0", r#""int8""#).found(
        "PKG006",
        "/non_quantized/0",
        "`int8` is also under `quantized`",
    ),
    set("/quantized/1", r#""fp32""#).found(
        "PKG006",
        "/non_quantized/0",
        "`fp32` is also under `quantized`",
    ),
];
