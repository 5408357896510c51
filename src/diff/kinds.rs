//! Every kind of change there is, with its level: the contract of `pkgtool diff`.

use super::Level;

/// A kind of change.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// Its name, which scripts may rely on.
    pub name: &'static str,
    /// How much it matters.
    pub level: Level,
    /// What it is.
    pub meaning: &'static str,
}

macro_rules! kinds {
    ($($constant:ident $level:ident $name:literal $meaning:literal)*) => {
        $(
            #[doc = $meaning]
            pub(super) static $constant: Kind = Kind {
                name: $name,
                level: Level::$level,
                meaning: $meaning,
            };
        )*

        /// All kinds, the breaking ones first.
        pub static KINDS: &[&Kind] = &[$(&$constant),*];
    };
}

kinds! {
    PACKAGE_REMOVED Breaking "package-removed" "a package, that is a model for a backend, is gone"
    PACKAGE_BROKEN Breaking "package-unreadable" "a config is no longer JSON that can be read"
    MODEL_RENAMED Breaking "identity-changed" "`model`, `size` or `backend` of a config is another"
    CAPABILITY_REMOVED Breaking "capability-removed" "a capability is gone"
    LICENSE_CHANGED Breaking "license-changed" "the licence is another"
    TOKENIZER_REMOVED Breaking "tokenizer-removed" "a tokenizer file is no longer named"
    TOKENIZER_IDS Breaking "tokenizer-changed" "the tokenizer may give other ids for a text"
    VARIANT_REMOVED Breaking "variant-removed" "a variant is gone: a precision"
    LAYOUT_CHANGED Breaking "layout-changed" "a variant of one file is now one of components, or the other way round"
    COMPONENT_REMOVED Breaking "component-removed" "a component is gone"
    FILE_MISSING Breaking "file-missing" "a file that was there is named and not there"
    FORMAT_CHANGED Breaking "format-changed" "a model file has another format"
    MODEL_BROKEN Breaking "model-unreadable" "a model file can no longer be read"
    BACKEND_NEEDED Breaking "delegate-added" "a model file needs a backend of the runtime that it did not need"
    DATA_NEEDED Breaking "external-data-added" "a model file needs data from another file, which it did not need"
    METHOD_REMOVED Breaking "method-removed" "a method is gone"
    CONSTANT_REMOVED Breaking "constant-removed" "a constant method, which runners ask for what they need to know, is gone"
    INPUT_ADDED Breaking "input-added" "a method takes one input more"
    INPUT_REMOVED Breaking "input-removed" "a method takes one input less"
    INPUT_ORDER Breaking "input-order" "inputs are in another order"
    INPUT_NAME Breaking "input-renamed" "an input has another name in a format that is fed by names (ONNX, Core ML)"
    OUTPUT_ADDED Breaking "output-added" "a method gives one output more"
    OUTPUT_REMOVED Breaking "output-removed" "a method gives one output less"
    OUTPUT_ORDER Breaking "output-order" "outputs are in another order"
    OUTPUT_NAME Breaking "output-renamed" "an output has another name in a format whose outputs are asked for by names"
    KIND_CHANGED Breaking "value-kind" "a tensor is now a number, a list or the like, or the other way round"
    DTYPE Breaking "dtype" "a tensor has another dtype"
    RANK Breaking "rank" "a tensor has another number of dimensions"
    DIM_SIZE Breaking "dim-size" "a fixed dimension has another size"
    DIM_FIXED Breaking "dim-fixed" "a dimension is no longer dynamic"
    DIM_NARROWED Breaking "dim-narrowed" "a dimension of an input no longer takes every size that it took"
    OUTPUT_DYNAMIC Breaking "output-dynamic" "a dimension of an output is dynamic now, though none of an input became so"
    PACKAGE_ADDED Compatible "package-added" "a package is new"
    PACKAGE_MENDED Compatible "package-readable" "a config can be read again"
    CAPABILITY_ADDED Compatible "capability-added" "a capability is new"
    TOKENIZER_ADDED Compatible "tokenizer-added" "a tokenizer file is named"
    TOKENIZER_OTHER Compatible "tokenizer-settings" "a tokenizer file changed in what gives a text the same ids"
    VARIANT_ADDED Compatible "variant-added" "a variant is new"
    COMPONENT_ADDED Compatible "component-added" "a component is new"
    FILE_RENAMED Compatible "file-renamed" "a file has another name or place"
    FILE_MENDED Compatible "file-found" "a file that was named and missing is there"
    MODEL_MENDED Compatible "model-readable" "a model file that could not be read can be"
    CONTENT_CHANGED Compatible "content-changed" "a file has other content of the same size: weights, for one"
    SIZE_CHANGED Compatible "size-changed" "a file is larger or smaller"
    FORMAT_VERSION Compatible "format-version" "a model file has another version of its format"
    BACKEND_DROPPED Compatible "delegate-removed" "a model file no longer needs a backend of the runtime"
    DATA_DROPPED Compatible "external-data-removed" "a model file no longer needs data from another file"
    OPERATOR_ADDED Compatible "operator-added" "a program calls an operator that it did not: runtimes built with selected operators need it"
    METHOD_ADDED Compatible "method-added" "a method is new"
    CONSTANT_ADDED Compatible "constant-added" "a constant method is new"
    CONSTANT_CHANGED Compatible "constant-changed" "a constant method answers otherwise"
    DIM_DYNAMIC Compatible "dim-dynamic" "a dimension became dynamic and still takes the size it had"
    DIM_WIDENED Compatible "dim-widened" "a dimension of an input takes more sizes"
    OUTPUT_RANGE Compatible "output-range" "a dynamic dimension of an output has another range"
    PRECISION_LIST Compatible "precision-list" "the precision list has other tokens, or a token is on its other side"
    DECLARED Cosmetic "methods-declared" "methods are declared that were not, or no longer, and the model file says the same"
    FAMILY Cosmetic "family-changed" "`family` is another"
    SCHEMA Cosmetic "schema-changed" "`$schema` is another"
    TENSOR_NAME Cosmetic "tensor-named" "a tensor has another name, which is not what it is fed by"
    ORDER Cosmetic "order-changed" "variants, components, capabilities or methods are in another order"
    CONFIG_MOVED Cosmetic "config-moved" "a config is in another directory"
    FORMATTING Cosmetic "formatting" "white space, the order of keys or how something is written"
}
