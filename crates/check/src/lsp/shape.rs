//! Looks up positions of a document in the JSON Schemas.

use std::sync::LazyLock;

use serde_json::Value;

use crate::validate::{CONFIG_SCHEMA, PRECISIONS_SCHEMA};
use pkgtool_base::source::JsonPath;
use pkgtool_base::source::json::Step;

static CONFIG: LazyLock<Value> = LazyLock::new(|| read(CONFIG_SCHEMA));
static PRECISIONS: LazyLock<Value> = LazyLock::new(|| read(PRECISIONS_SCHEMA));

/// A subschema.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subschema {
    schema: &'static Value,
    node: &'static Value,
    description: Option<&'static str>,
    is_methods: bool,
}

impl Subschema {
    /// Returns the subschema for the value at `path` of a config or a precision list. `nested` is
    /// set if the variant in the path groups its methods by component.
    pub(super) fn at(is_list: bool, path: &JsonPath, nested: bool) -> Option<Self> {
        let schema: &'static Value = if is_list { &PRECISIONS } else { &CONFIG };
        let mut steps = path.steps().iter();
        let root = Self::of(schema, schema);
        steps.try_fold(root, |shape, step| shape.child(step, nested))
    }

    pub(super) fn description(self) -> Option<&'static str> {
        self.description
    }

    /// Returns the allowed words, if the schema lists them.
    pub(super) fn words(self) -> Vec<&'static str> {
        let words = self.node.get("enum").and_then(Value::as_array);
        words
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }

    /// Returns the members that an object can have, with their subschemas.
    pub(super) fn members(self) -> Vec<(&'static str, Self)> {
        let members = self.node.get("properties").and_then(Value::as_object);
        members
            .into_iter()
            .flatten()
            .map(|(key, node)| (key.as_str(), self.member(key, node)))
            .collect()
    }

    /// Returns whether an object requires the member. A variant also requires either `file` or
    /// `components`, which is not included here.
    pub(super) fn requires(self, key: &str) -> bool {
        let required = self.node.get("required").and_then(Value::as_array);
        required.is_some_and(|keys| keys.iter().any(|one| one == key))
    }

    /// Returns the allowed types, as JSON Schema names them.
    pub(super) fn types(self) -> Vec<&'static str> {
        match self.node.get("type") {
            Some(Value::String(one)) => vec![one],
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        }
    }

    /// Returns the subschema of an array's elements.
    pub(super) fn element(self) -> Option<Self> {
        Some(Self::of(self.schema, self.node.get("items")?))
    }

    fn child(self, step: &Step, nested: bool) -> Option<Self> {
        let Step::Key(key) = step else {
            return self.element();
        };
        if self.is_methods {
            let name = if nested { "methods" } else { "methodSignature" };
            return Some(Self::of(self.schema, self.schema.get("$defs")?.get(name)?));
        }
        let member = self.node.get("properties").and_then(|all| all.get(&**key));
        if let Some(node) = member {
            return Some(self.member(key, node));
        }
        let others = self.node.get("additionalProperties")?;
        others.is_object().then(|| Self::of(self.schema, others))
    }

    fn member(self, key: &str, node: &'static Value) -> Self {
        Self {
            is_methods: key == "methods",
            ..Self::of(self.schema, node)
        }
    }

    fn of(schema: &'static Value, node: &'static Value) -> Self {
        let description = |node: &'static Value| node.get("description").and_then(Value::as_str);
        let reference = node.get("$ref").and_then(Value::as_str);
        let target = reference.and_then(|target| schema.pointer(target.strip_prefix('#')?));
        Self {
            schema,
            node: target.unwrap_or(node),
            description: description(node).or_else(|| target.and_then(description)),
            is_methods: false,
        }
    }
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).expect("the schemas of this repository are JSON")
}

#[cfg(test)]
mod tests {
    use super::Subschema;
    use pkgtool_base::source::JsonPath;

    #[test]
    fn paths_lead_to_what_the_schema_says() {
        let variant = JsonPath::root().key("variants").index(3);
        let at = |path: &JsonPath, nested| Subschema::at(false, path, nested);
        let shape = at(&variant.key("size_bytes"), false).expect("a member");
        assert!(
            shape
                .description()
                .is_some_and(|text| text.starts_with("Size of"))
        );
        assert_eq!(shape.types(), ["integer"]);
        let method = variant.key("methods").key("forward");
        let dtype = |path: &JsonPath| path.key("inputs").index(0).key("dtype");
        let flat = at(&dtype(&method), false).expect("a member");
        assert!(flat.words().contains(&"bfloat16"));
        let nested = at(
            &dtype(&variant.key("methods").key("encoder").key("forward")),
            true,
        );
        assert_eq!(nested.expect("a member").words(), flat.words());
        assert!(
            at(&variant, false)
                .expect("a variant")
                .requires("precision")
        );
        assert!(at(&variant.key("nothing"), false).is_none());
        let token = Subschema::at(true, &JsonPath::root().key("quantized").index(0), false);
        assert_eq!(token.expect("a token").types(), ["string"]);
    }
}
