//! Records the declarations of a graph or function: inputs, outputs, initializers, and types of
//! intermediate values.

use super::operators::TypeSet;
use super::scope::{Definition, GraphOutput, GraphValue, StatedType, UntypedInput};
use super::typing::{self, ValueDeclaration};
use super::{LoadChecks, declared_otherwise, occurs_twice, rejected, shown};
use crate::FormatError;
use crate::onnx::wire::WireField;

impl LoadChecks {
    /// Records an input of the graph, declared by a `ValueInfoProto`.
    pub(in crate::onnx) fn input(&mut self, field: &WireField<'_>) -> Result<(), FormatError> {
        let declared = typing::declared(field)?;
        self.check_element_type(field, &declared)?;
        let ValueDeclaration { name, types, .. } = declared;
        if !declared.has_type && self.takes_room() {
            let place = field.place().to_string();
            field.keep((name.len() + place.len()) as u64)?;
            let untyped = UntypedInput {
                name: shown(&name),
                place,
                offset: field.offset(),
            };
            let key = self.key(&name);
            self.scope().untyped.insert(key, untyped);
        }
        self.given(field, &name, types, Definition::Input)
    }

    /// Records the type that the graph declares for a value.
    pub(in crate::onnx) fn value_info(&mut self, field: &WireField<'_>) -> Result<(), FormatError> {
        let ValueDeclaration {
            name,
            types,
            has_type,
            invalid,
        } = typing::declared(field)?;
        if has_type && self.takes_room() {
            let key = self.key(&name);
            self.scope()
                .stated
                .insert(key, StatedType { types, invalid });
        }
        Ok(())
    }

    /// Records an input of the function.
    pub(in crate::onnx) fn function_input(
        &mut self,
        field: &WireField<'_>,
    ) -> Result<(), FormatError> {
        let name = field.identifier()?;
        self.given(field, &name, 0, Definition::Input)
    }

    /// Records an initializer of the graph.
    pub(in crate::onnx) fn initializer(
        &mut self,
        field: &WireField<'_>,
        name: &[u8],
        data_type: i64,
    ) -> Result<(), FormatError> {
        if self.is_active && !typing::is_element(data_type) {
            return Err(rejected(field, format!("invalid element type {data_type}")));
        }
        self.given(
            field,
            name,
            typing::tensor(data_type),
            Definition::Initializer,
        )
    }

    /// Records a declared output of the graph.
    pub(in crate::onnx) fn output(&mut self, field: &WireField<'_>) -> Result<(), FormatError> {
        let declared = typing::declared(field)?;
        self.check_element_type(field, &declared)?;
        if declared.has_type && self.takes_room() {
            let key = self.key(&declared.name);
            self.scope().typed_outputs.insert(key);
        }
        self.declared(field, &declared.name, declared.types)
    }

    /// Records an output of the function.
    pub(in crate::onnx) fn function_output(
        &mut self,
        field: &WireField<'_>,
    ) -> Result<(), FormatError> {
        let name = field.identifier()?;
        self.declared(field, &name, 0)
    }

    /// Checks that the element type exists.
    fn check_element_type(
        &self,
        field: &WireField<'_>,
        declared: &ValueDeclaration,
    ) -> Result<(), FormatError> {
        match declared.invalid.filter(|_| self.is_active) {
            None => Ok(()),
            Some(found) => Err(rejected(field, format!("invalid element type {found}"))),
        }
    }

    fn declared(
        &mut self,
        field: &WireField<'_>,
        name: &[u8],
        types: TypeSet,
    ) -> Result<(), FormatError> {
        if !self.takes_room() {
            return Ok(());
        }
        field.keep(name.len() as u64)?;
        let output = GraphOutput {
            key: self.key(name),
            name: shown(name),
            types,
            offset: field.offset(),
        };
        self.scope().outputs.push(output);
        Ok(())
    }

    fn given(
        &mut self,
        field: &WireField<'_>,
        name: &[u8],
        types: TypeSet,
        maker: Definition,
    ) -> Result<(), FormatError> {
        if name.is_empty() || !self.takes_room() {
            return Ok(());
        }
        let key = self.key(name);
        let is_input = |maker| maker == Definition::Input;
        let scope = self.scope();
        if is_input(maker) {
            scope.inputs.push(key);
        }
        let Some(earlier) = scope.values.get_mut(&key) else {
            scope.values.insert(key, GraphValue { maker, types });
            return Ok(());
        };
        if is_input(maker) && is_input(earlier.maker) {
            let fault = occurs_twice("the input", &shown(name));
            return Err(rejected(field, fault));
        }
        let differs = earlier.types != 0 && types != 0 && earlier.types != types;
        if differs && is_input(maker) != is_input(earlier.maker) {
            let (declared, found) = match maker {
                Definition::Input => (types, earlier.types),
                _ => (earlier.types, types),
            };
            let fault = declared_otherwise(&shown(name), declared, found);
            return Err(rejected(field, fault));
        }
        if earlier.types == 0 || is_input(maker) && types != 0 {
            earlier.types = types;
        }
        if is_input(maker) != is_input(earlier.maker) {
            earlier.maker = Definition::Input;
            scope.initialized += 1;
            scope.untyped.remove(&key);
        }
        Ok(())
    }
}
