//! A small FlatBuffers writer, for ExecuTorch programs that no exporter produces.
//!
//! It writes front to back. Plans and tensors get the empty fields that a device requires.

/// A target of an offset.
#[derive(Clone)]
pub enum OffsetTarget {
    /// A table: fields by number.
    Table(Vec<(u16, ProgramField)>),
    /// A vector of tables.
    Tables(Vec<OffsetTarget>),
    /// A vector of 32-bit integers.
    Ints(Vec<i32>),
    /// A vector of 64-bit integers.
    Longs(Vec<i64>),
    /// A vector of bytes.
    Bytes(Vec<u8>),
    /// A string.
    Text(String),
    /// A vector that declares this length but has no elements.
    Lie(u32),
}

/// A field of a table.
#[derive(Clone)]
pub enum ProgramField {
    /// A scalar, little endian.
    Scalar(Vec<u8>),
    /// An offset to something.
    To(OffsetTarget),
}

/// Encodes a byte.
pub fn byte(value: u8) -> ProgramField {
    ProgramField::Scalar(vec![value])
}

/// Encodes a 32-bit integer.
pub fn int(value: u32) -> ProgramField {
    ProgramField::Scalar(value.to_le_bytes().to_vec())
}

/// Encodes a 64-bit integer.
pub fn long(value: u64) -> ProgramField {
    ProgramField::Scalar(value.to_le_bytes().to_vec())
}

/// Encodes an offset to a string.
pub fn text(value: &str) -> ProgramField {
    ProgramField::To(OffsetTarget::Text(value.to_owned()))
}

/// Encodes an offset to a vector of tables.
pub fn tables(nodes: Vec<OffsetTarget>) -> ProgramField {
    ProgramField::To(OffsetTarget::Tables(nodes))
}

/// Encodes an offset to a vector of 32-bit integers.
pub fn ints(values: &[i32]) -> ProgramField {
    ProgramField::To(OffsetTarget::Ints(values.to_vec()))
}

/// Returns a file with this root table and the identifier `ET12`.
pub fn file(root: &OffsetTarget) -> Vec<u8> {
    // A device reads 64 bytes before it parses any.
    let mut out = vec![0; 64];
    out[4..8].copy_from_slice(b"ET12");
    let at = write(&mut out, root);
    out[..4].copy_from_slice(&u32::try_from(at).expect("a small file").to_le_bytes());
    out
}

fn write(out: &mut Vec<u8>, node: &OffsetTarget) -> usize {
    match node {
        OffsetTarget::Table(fields) => write_table(out, fields),
        OffsetTarget::Tables(nodes) => {
            let at = start(out, nodes.len());
            let slots: Vec<usize> = nodes.iter().map(|_| push(out, &[0; 4])).collect();
            for (slot, node) in slots.into_iter().zip(nodes) {
                link(out, slot, node);
            }
            at
        }
        OffsetTarget::Ints(values) => {
            let at = start(out, values.len());
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            at
        }
        OffsetTarget::Longs(values) => {
            let at = start(out, values.len());
            out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
            at
        }
        OffsetTarget::Bytes(bytes) => {
            let at = start(out, bytes.len());
            out.extend(bytes);
            at
        }
        OffsetTarget::Text(text) => {
            let at = start(out, text.len());
            out.extend(text.as_bytes());
            out.push(0);
            at
        }
        OffsetTarget::Lie(length) => {
            align(out, 4);
            push(out, &length.to_le_bytes())
        }
    }
}

fn write_table(out: &mut Vec<u8>, fields: &[(u16, ProgramField)]) -> usize {
    let slots = fields.iter().map(|(slot, _)| slot + 1).max().unwrap_or(0);
    let mut vtable = vec![0u16; usize::from(slots)];
    let mut body = vec![0u8; 4];
    let mut links = Vec::new();
    for (slot, field) in fields {
        if let ProgramField::Scalar(bytes) = field {
            align(&mut body, bytes.len());
        } else {
            align(&mut body, 4);
        }
        vtable[usize::from(*slot)] = u16::try_from(body.len()).expect("a small table");
        match field {
            ProgramField::Scalar(bytes) => body.extend(bytes),
            ProgramField::To(node) => {
                links.push((body.len(), node));
                body.extend([0; 4]);
            }
        }
    }
    let size = 4 + 2 * slots;
    align(out, 2);
    let start = push(out, &size.to_le_bytes());
    push(
        out,
        &u16::try_from(body.len())
            .expect("the number fits")
            .to_le_bytes(),
    );
    out.extend(vtable.iter().flat_map(|entry| entry.to_le_bytes()));
    align(out, 8);
    let distance = u32::try_from(out.len() - start).expect("the number fits");
    body[..4].copy_from_slice(&distance.to_le_bytes());
    let at = push(out, &body);
    for (within, node) in links {
        link(out, at + within, node);
    }
    at
}

fn start(out: &mut Vec<u8>, len: usize) -> usize {
    align(out, 4);
    let len = u32::try_from(len).expect("a small vector");
    push(out, &len.to_le_bytes())
}

fn align(out: &mut Vec<u8>, to: usize) {
    out.resize(out.len().next_multiple_of(to), 0);
}

fn push(out: &mut Vec<u8>, bytes: &[u8]) -> usize {
    let at = out.len();
    out.extend(bytes);
    at
}

fn link(out: &mut Vec<u8>, slot: usize, node: &OffsetTarget) {
    let target = write(out, node);
    let distance = u32::try_from(target - slot).expect("a small file");
    out[slot..slot + 4].copy_from_slice(&distance.to_le_bytes());
}

/// A method with these fields and the empty ones that a device requires.
pub fn method(mut fields: Vec<(u16, ProgramField)>) -> OffsetTarget {
    let chain = OffsetTarget::Table(vec![(2, tables(Vec::new()))]);
    let empty = [
        (2, tables(Vec::new())),
        (3, ints(&[])),
        (4, ints(&[])),
        (5, tables(vec![chain])),
        (7, tables(Vec::new())),
        (8, ProgramField::To(OffsetTarget::Longs(vec![0]))),
    ];
    for (slot, field) in empty {
        if fields.iter().all(|(known, _)| *known != slot) {
            fields.push((slot, field));
        }
    }
    OffsetTarget::Table(fields)
}

/// A program with these methods.
pub fn program(plans: Vec<OffsetTarget>) -> OffsetTarget {
    OffsetTarget::Table(vec![(1, tables(plans))])
}

/// A method, described by its relevant parts only.
#[derive(Default)]
pub struct ProgramPlan {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub values: Vec<OffsetTarget>,
    /// Indices of the values that are inputs.
    pub inputs: Vec<i32>,
    /// Indices of the values that are outputs.
    pub outputs: Vec<i32>,
    /// Full names, split at the dot.
    pub operators: Vec<&'static str>,
    /// Operator and arguments.
    pub calls: Vec<(u32, Vec<i32>)>,
}

impl ProgramPlan {
    /// Returns the table of the method.
    pub fn node(&self) -> OffsetTarget {
        let operator = |full: &&str| {
            let (name, overload) = full.split_once('.').unwrap_or((*full, ""));
            OffsetTarget::Table(vec![(0, text(name)), (1, text(overload))])
        };
        let call = |(operator, args): &(u32, Vec<i32>)| {
            let call = OffsetTarget::Table(vec![(0, int(*operator)), (1, ints(args))]);
            OffsetTarget::Table(vec![(0, byte(1)), (1, ProgramField::To(call))])
        };
        let instructions = tables(self.calls.iter().map(call).collect());
        method(vec![
            (0, text(self.name)),
            (2, tables(self.values.clone())),
            (3, ints(&self.inputs)),
            (4, ints(&self.outputs)),
            (
                5,
                tables(vec![OffsetTarget::Table(vec![(2, instructions)])]),
            ),
            (6, tables(self.operators.iter().map(operator).collect())),
        ])
    }
}

/// A value of a union member. A tensor without a dimension order gets the row-major one.
pub fn value(tag: u8, mut table: Vec<(u16, ProgramField)>) -> OffsetTarget {
    let says = |slot| table.iter().any(|(known, _)| *known == slot);
    if tag == 5 && !says(3) {
        let rank = table.iter().find_map(|(slot, field)| match field {
            ProgramField::To(OffsetTarget::Ints(sizes)) if *slot == 2 => Some(sizes.len()),
            _ => None,
        });
        let order = (0..rank.unwrap_or(0)).map(|dim| u8::try_from(dim).expect("a small rank"));
        table.push((3, ProgramField::To(OffsetTarget::Bytes(order.collect()))));
    }
    OffsetTarget::Table(vec![
        (0, byte(tag)),
        (1, ProgramField::To(OffsetTarget::Table(table))),
    ])
}

/// A float32 tensor. `dynamism` is 0 for static, 1 for bounded, 2 for unbounded.
pub fn tensor(sizes: &[i32], dynamism: u8) -> OffsetTarget {
    value(5, vec![(0, byte(6)), (2, ints(sizes)), (8, byte(dynamism))])
}

/// An integer.
pub fn integer(number: i64) -> OffsetTarget {
    value(
        2,
        vec![(0, ProgramField::Scalar(number.to_le_bytes().to_vec()))],
    )
}

/// A method that returns a constant value.
pub fn constant(name: &'static str, value: OffsetTarget) -> OffsetTarget {
    let plan = ProgramPlan {
        name,
        values: vec![value],
        outputs: vec![0],
        ..ProgramPlan::default()
    };
    plan.node()
}
