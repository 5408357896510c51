//! Checks a node against the schema of its operator.

use super::infer;
use super::node::{AttributeHeader, NodeHeader, kind_name};
use super::operators::{FormalParameter, OperatorSchema, Operators, Presence, TypeSet};

/// Checks `node` against `schema`. `inputs` are the types of its inputs, 0 for an unknown type.
/// Returns the types bound to the schema's type parameters.
pub(super) fn check(
    node: &NodeHeader,
    schema: &OperatorSchema,
    inputs: &[TypeSet],
) -> Result<Vec<TypeSet>, String> {
    count(
        node,
        "inputs",
        &node.inputs,
        schema.min_inputs,
        &schema.inputs,
    )?;
    count(
        node,
        "outputs",
        &node.outputs,
        schema.min_outputs,
        &schema.outputs,
    )?;
    check_required(node, "input", &node.inputs, &schema.inputs)?;
    check_required(node, "output", &node.outputs, &schema.outputs)?;
    attributes(node, schema)?;
    bind(node, schema, inputs)
}

/// Checks a constant. `is_converted` is true if ONNX Runtime converts it to an initializer, as it
/// does outside functions.
pub(super) fn constant(node: &NodeHeader, is_converted: bool) -> Result<(), String> {
    if node.outputs.len() != 1 {
        return Err(format!(
            "`{}` has {} outputs: expected 1",
            node.operator,
            node.outputs.len()
        ));
    }
    let first = node.attributes.first();
    if is_converted && !first.is_some_and(infer::is_constant) {
        return Err(
            "`Constant` has no value: expected an attribute with a tensor, number or string"
                .to_owned(),
        );
    }
    Ok(())
}

fn count(
    node: &NodeHeader,
    what: &'static str,
    names: &[Vec<u8>],
    least: usize,
    formals: &[FormalParameter],
) -> Result<(), String> {
    let most = OperatorSchema::most(formals);
    let found = names.len();
    if found >= least && most.is_none_or(|most| found <= most) {
        return Ok(());
    }
    let expected = match most {
        None => format!("at least {least}"),
        Some(most) if most == least => least.to_string(),
        Some(most) => format!("{least} to {most}"),
    };
    Err(format!(
        "`{}` has {found} {what}: expected {expected}",
        node.operator
    ))
}

fn check_required(
    node: &NodeHeader,
    what: &'static str,
    names: &[Vec<u8>],
    formals: &[FormalParameter],
) -> Result<(), String> {
    let is_needed = |position: usize| {
        let formal = formals.get(position);
        formal.is_some_and(|formal| formal.presence == Presence::Single)
    };
    let mut empty = names.iter().enumerate().filter(|(_, name)| name.is_empty());
    match empty.find(|(position, _)| is_needed(*position)) {
        None => Ok(()),
        Some((position, _)) => Err(format!(
            "`{}` omits {what} {position}, which is required",
            node.operator
        )),
    }
}

fn attributes(node: &NodeHeader, schema: &OperatorSchema) -> Result<(), String> {
    for (index, attribute) in node.attributes.iter().enumerate() {
        let name = &attribute.name;
        value(attribute)?;
        let mut earlier = node.attributes[..index].iter();
        if earlier.any(|other| other.name == attribute.name) {
            return Err(format!("the attribute `{name}` appears twice"));
        }
        let mut known = schema.attributes.iter();
        let Some(known) = known.find(|known| known.name == attribute.name) else {
            // Names that begin with two underscores belong to the runtime.
            let takes_any = schema.attributes.iter().any(|known| known.name == "*");
            if takes_any || attribute.name.starts_with("__") {
                continue;
            }
            return Err(format!("`{}` has no attribute `{name}`", node.operator));
        };
        let found = attribute.stated_type.or(attribute.value().map(i64::from));
        if let Some(found) = found.filter(|found| *found != i64::from(known.kind)) {
            return Err(format!(
                "the attribute `{name}` is {}: expected {}",
                kind_name(found),
                kind_name(known.kind.into())
            ));
        }
    }
    let is_given = |name| node.attributes.iter().any(|given| given.name == name);
    let mut required = schema.attributes.iter().filter(|known| known.required);
    match required.find(|known| !is_given(known.name)) {
        None => Ok(()),
        Some(missing) => Err(format!(
            "`{}` needs the attribute `{}`, which is missing",
            node.operator, missing.name
        )),
    }
}

/// Checks that an attribute has a name and exactly one value, of the stated type.
fn value(attribute: &AttributeHeader) -> Result<(), String> {
    if attribute.name.is_empty() {
        return Err("an attribute has no name".to_owned());
    }
    let Some(stated) = attribute.stated_type else {
        return Ok(());
    };
    // Protobuf readers cannot distinguish a default number or text from a missing one.
    let is_default = attribute.is_empty() && !matches!(stated, 4 | 5);
    let found = match attribute.value() {
        Some(value) if i64::from(value) == stated => return Ok(()),
        None if is_default || attribute.is_reference => return Ok(()),
        Some(value) => kind_name(value.into()),
        None if attribute.is_empty() => "missing",
        None => "of several types",
    };
    Err(format!(
        "the attribute `{}` states the type {}, but its value is {found}",
        attribute.name,
        kind_name(stated)
    ))
}

/// Binds the schema's type parameters to the types of the inputs.
fn bind(
    node: &NodeHeader,
    schema: &OperatorSchema,
    inputs: &[TypeSet],
) -> Result<Vec<TypeSet>, String> {
    let table = Operators::get();
    let parameters = schema.inputs.iter().filter_map(|formal| formal.parameter);
    let mut bound = vec![0; parameters.max().map_or(0, |last| last + 1)];
    for (position, &found) in inputs.iter().enumerate() {
        let Some(formal) = OperatorSchema::formal(&schema.inputs, position).filter(|_| found != 0)
        else {
            continue;
        };
        if formal.types & found == 0 {
            return Err(format!(
                "`{}` does not accept {} as input {position}",
                node.operator,
                table.type_name(found)
            ));
        }
        let Some(earlier) = formal.parameter.map(|index| &mut bound[index]) else {
            continue;
        };
        if *earlier != 0 && *earlier != found {
            return Err(format!(
                "`{}` takes inputs of one type, but input {position} is {} and an earlier one is {}",
                node.operator,
                table.type_name(found),
                table.type_name(*earlier)
            ));
        }
        *earlier = found;
    }
    Ok(bound)
}
