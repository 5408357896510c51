//! All kinds of change with their levels: the stable contract of `pkgtool diff`.

use super::ChangeLevel;

/// A kind of change.
#[derive(Debug, PartialEq, Eq)]
pub struct ChangeKind {
    /// The stable name, for scripts.
    pub name: &'static str,
    /// The severity.
    pub level: ChangeLevel,
    /// The meaning, in words.
    pub meaning: &'static str,
}

macro_rules! kinds {
    ($($constant:ident $level:ident $name:literal $meaning:literal)*) => {
        $(
            #[doc = $meaning]
            pub(super) static $constant: ChangeKind = ChangeKind {
                name: $name,
                level: ChangeLevel::$level,
                meaning: $meaning,
            };
        )*

        /// All kinds, breaking ones first.
        pub static KINDS: &[&ChangeKind] = &[$(&$constant),*];
    };
}

kinds! {
    PACKAGE_REMOVED Breaking "package-removed" "a package (a model for one backend) was removed"
    PACKAGE_BROKEN Breaking "package-unreadable" "a config is no longer readable JSON"
    MODEL_RENAMED Breaking "identity-changed" "`model`, `size` or `backend` of a config changed"
    CAPABILITY_REMOVED Breaking "capability-removed" "a capability was removed"
    LICENSE_CHANGED Breaking "license-changed" "the licence changed"
    TOKENIZER_REMOVED Breaking "tokenizer-removed" "a tokenizer file is no longer referenced"
    TOKENIZER_IDS Breaking "tokenizer-changed" "the tokenizer may produce other ids for a text"
    VARIANT_REMOVED Breaking "variant-removed" "a variant (a precision) was removed"
    LAYOUT_CHANGED Breaking "layout-changed" "a variant changed from one file to components, or the reverse"
    COMPONENT_REMOVED Breaking "component-removed" "a component was removed"
    FILE_MISSING Breaking "file-missing" "a referenced file that existed is missing"
    FORMAT_CHANGED Breaking "format-changed" "a model file has another format"
    MODEL_BROKEN Breaking "model-unreadable" "a model file can no longer be read"
    BACKEND_NEEDED Breaking "delegate-added" "a model file needs an additional backend of the runtime"
    DATA_NEEDED Breaking "external-data-added" "a model file newly needs data from another file"
    METHOD_REMOVED Breaking "method-removed" "a method was removed"
    CONSTANT_REMOVED Breaking "constant-removed" "a constant method, from which runners read settings, was removed"
    INPUT_ADDED Breaking "input-added" "a method takes an additional input"
    INPUT_REMOVED Breaking "input-removed" "a method no longer takes an input"
    INPUT_ORDER Breaking "input-order" "inputs are in another order"
    INPUT_NAME Breaking "input-renamed" "an input was renamed in a format that binds inputs by name (ONNX, Core ML)"
    OUTPUT_ADDED Breaking "output-added" "a method returns an additional output"
    OUTPUT_REMOVED Breaking "output-removed" "a method no longer returns an output"
    OUTPUT_ORDER Breaking "output-order" "outputs are in another order"
    OUTPUT_NAME Breaking "output-renamed" "an output was renamed in a format that binds outputs by name"
    KIND_CHANGED Breaking "value-kind" "a tensor became another kind of value (a number, a list), or the reverse"
    DTYPE Breaking "dtype" "a tensor has another dtype"
    RANK Breaking "rank" "a tensor has another number of dimensions"
    DIM_SIZE Breaking "dim-size" "a fixed dimension has another size"
    DIM_FIXED Breaking "dim-fixed" "a dimension is no longer dynamic"
    DIM_NARROWED Breaking "dim-narrowed" "a dimension of an input no longer accepts every size that it accepted"
    OUTPUT_DYNAMIC Breaking "output-dynamic" "a dimension of an output became dynamic, but none of an input did"
    PACKAGE_ADDED Compatible "package-added" "a package was added"
    PACKAGE_MENDED Compatible "package-readable" "a config is readable again"
    CAPABILITY_ADDED Compatible "capability-added" "a capability was added"
    TOKENIZER_ADDED Compatible "tokenizer-added" "a tokenizer file was added"
    TOKENIZER_OTHER Compatible "tokenizer-settings" "a tokenizer file changed, but a text still gets the same ids"
    VARIANT_ADDED Compatible "variant-added" "a variant was added"
    COMPONENT_ADDED Compatible "component-added" "a component was added"
    FILE_RENAMED Compatible "file-renamed" "a file was renamed or moved"
    FILE_MENDED Compatible "file-found" "a missing referenced file now exists"
    MODEL_MENDED Compatible "model-readable" "an unreadable model file is now readable"
    CONTENT_CHANGED Compatible "content-changed" "a file has other content of the same size, such as new weights"
    SIZE_CHANGED Compatible "size-changed" "a file is larger or smaller"
    FORMAT_VERSION Compatible "format-version" "a model file has another version of its format"
    BACKEND_DROPPED Compatible "delegate-removed" "a model file no longer needs a backend of the runtime"
    DATA_DROPPED Compatible "external-data-removed" "a model file no longer needs data from another file"
    OPERATOR_ADDED Compatible "operator-added" "a program calls an additional operator: runtimes built with selected operators need it"
    METHOD_ADDED Compatible "method-added" "a method was added"
    CONSTANT_ADDED Compatible "constant-added" "a constant method was added"
    CONSTANT_CHANGED Compatible "constant-changed" "a constant method returns another value"
    DIM_DYNAMIC Compatible "dim-dynamic" "a dimension became dynamic and still accepts its former size"
    DIM_WIDENED Compatible "dim-widened" "a dimension of an input accepts more sizes"
    OUTPUT_RANGE Compatible "output-range" "a dynamic dimension of an output has another range"
    PRECISION_LIST Compatible "precision-list" "the precision list has other tokens, or a token moved to the other side"
    DECLARED Cosmetic "methods-declared" "a declaration of methods was added or removed without contradicting the model file"
    FAMILY Cosmetic "family-changed" "`family` changed"
    SCHEMA Cosmetic "schema-changed" "`$schema` changed"
    TENSOR_NAME Cosmetic "tensor-named" "a tensor was renamed in a format that does not bind by name"
    ORDER Cosmetic "order-changed" "variants, components, capabilities or methods are in another order"
    CONFIG_MOVED Cosmetic "config-moved" "a config moved to another directory"
    FORMATTING Cosmetic "formatting" "white space, the order of keys or the spelling of values"
}
