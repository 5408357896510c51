//! Reads a TensorFlow Lite model (operator names, subgraphs, buffers) and describes it as a
//! [`ModelInfo`].

use std::collections::{BTreeMap, BTreeSet};

use super::element::element_of;
use super::schema::{buffer, code, metadata, model, quantization, subgraph, tensor};
use super::subgraph::{MAX_RANK, Subgraph, TENSOR_COST};
use super::{IDENTIFIER, operator as builtin, signature};
use crate::executorch::flatbuffer::{Buffer, Table, Vector};
use crate::{FieldPosition, FormatError, Method, ModelFormat, ModelInfo, ModelValue};
use pkgtool_base::source::pages::DEFAULT_BUDGET;
use pkgtool_base::source::{Pages, ReadAt};

/// Read budget per byte of the file, and its base; offsets may lead to the same table many times.
const BUDGET_PER_BYTE: u64 = 16;
const BASE_BUDGET: u64 = 100_000;
/// Schema version of all files since 2017.
const SCHEMA_VERSION: u32 = 3;

pub(super) fn read(source: &dyn ReadAt) -> Result<ModelInfo, FormatError> {
    let budget = source.len().saturating_mul(BUDGET_PER_BYTE);
    let budget = budget.saturating_add(BASE_BUDGET).min(DEFAULT_BUDGET);
    let pages = Pages::with_budget(source, budget);
    check_identifier(&pages)?;
    let flat = Buffer::new(&pages, 0, pages.len());
    let root = flat.root("Model")?;
    let version = root.u32(model::VERSION)?;
    if version != SCHEMA_VERSION {
        return Err(root.place(model::VERSION).expected(
            format_args!("version {SCHEMA_VERSION} of the schema"),
            version,
        ));
    }
    let operators = operators(&root)?;
    let buffers = root.tables(model::BUFFERS)?;
    let mut weights = StoredWeights::default();
    let mut subgraphs = Vec::new();
    for table in root.tables(model::SUBGRAPHS)?.iter_tables() {
        let table = table?;
        flat.keep(TENSOR_COST, || table.here())?;
        let subgraph = Subgraph::read(&table, &operators)?;
        weights.add(&table, &buffers)?;
        subgraphs.push(subgraph);
    }
    let (methods, names_methods) = methods(&root, &subgraphs)?;
    let metadata = facts(&root, &subgraphs, &weights)?;
    Ok(ModelInfo {
        format: super::TfLite.name(),
        format_by_name: None,
        format_version: format!("{IDENTIFIER}, schema {version}"),
        producer: root
            .truncated_text(model::DESCRIPTION)?
            .filter(|text| !text.is_empty()),
        names_methods,
        methods,
        weight_bytes: weights.bytes,
        weight_types: weights.types,
        metadata,
        ..ModelInfo::default()
    })
}

fn check_identifier(pages: &Pages<'_>) -> Result<(), FormatError> {
    let place = || FieldPosition::new("identifier", 4);
    let found = if pages.len() < 8 {
        format!("a file of {} bytes", pages.len())
    } else {
        let bytes: [u8; 4] = pages.array(4).map_err(|error| place().unreadable(&error))?;
        if bytes == *IDENTIFIER.as_bytes() {
            return Ok(());
        }
        format!("\"{}\"", bytes.escape_ascii())
    };
    Err(place().expected(IDENTIFIER, found))
}

/// Returns the operator names by their index in the model.
fn operators(root: &Table<'_>) -> Result<Vec<String>, FormatError> {
    let codes = root.tables(model::OPERATOR_CODES)?;
    codes.keep(TENSOR_COST)?;
    let names = codes.iter_tables().map(|found| {
        let found = found?;
        // The original field is a single byte; newer writers fill both fields.
        let short = i32::from(found.i8(code::SHORT)?);
        let builtin = found.i32(code::BUILTIN)?.max(short);
        if builtin == builtin::CUSTOM {
            let name = found.name(code::CUSTOM)?.unwrap_or_default();
            return Ok(format!("custom::{name}"));
        }
        Ok(builtin::name_of(builtin))
    });
    names.collect()
}

/// Statistics of the stored tensors.
#[derive(Default)]
struct StoredWeights {
    bytes: u64,
    types: BTreeMap<String, u64>,
    quantised: u64,
    seen: BTreeSet<u64>,
}

impl StoredWeights {
    fn add(&mut self, table: &Table<'_>, buffers: &Vector<'_>) -> Result<(), FormatError> {
        for found in table.tables(subgraph::TENSORS)?.iter_tables() {
            let found = found?;
            self.tensor(&found, buffers)?;
        }
        Ok(())
    }

    fn tensor(&mut self, table: &Table<'_>, buffers: &Vector<'_>) -> Result<(), FormatError> {
        let index = u64::from(table.u32(tensor::BUFFER)?);
        // Buffer 0 means "no data"; files without buffers have no constants.
        if index == 0 {
            return Ok(());
        }
        if index >= buffers.len() {
            return Err(table
                .place(tensor::BUFFER)
                .index("buffers", buffers.len(), index));
        }
        let size = stored(&buffers.table(index)?, table)?;
        if size == 0 {
            return Ok(());
        }
        let (element, bits) = element_of(table.i8(tensor::TYPE)?);
        let is_sparse = table.has(tensor::SPARSITY)?;
        let is_variable = table.u8(tensor::IS_VARIABLE)? != 0;
        let elements = elements(table)?;
        let needs = bits.and_then(|bits| elements?.checked_mul(bits));
        let needs = needs.map(|bits| bits.div_ceil(8)).filter(|_| !is_sparse);
        if let Some(needs) = needs.filter(|needs| *needs != size) {
            return Err(table.place(tensor::BUFFER).expected(
                format_args!("a buffer of {needs} bytes, as its type and shape need"),
                size,
            ));
        }
        table.buffer().keep(16, || table.here())?;
        // Equal tensors share a buffer.
        if !self.seen.insert(index) || is_variable {
            return Ok(());
        }
        self.bytes = self.bytes.saturating_add(size);
        if bits.is_some() {
            let count = self.types.entry(element.name().to_owned()).or_default();
            *count = count.saturating_add(elements.unwrap_or(0));
        }
        if let Some(found) = table.table(tensor::QUANTIZATION)? {
            check_quantization(&found)?;
            self.quantised += u64::from(!found.vector(quantization::SCALE, 4)?.is_empty());
        }
        Ok(())
    }
}

/// Returns the size of a buffer in bytes. The data is inside the FlatBuffer or, in files above 2
/// GB, behind it.
fn stored(found: &Table<'_>, owner: &Table<'_>) -> Result<u64, FormatError> {
    let data = found.vector(buffer::DATA, 1)?;
    let offset = found.u64(buffer::OFFSET)?;
    // Offsets 0 and 1 mean that the data is inside the FlatBuffer.
    if offset <= 1 {
        return Ok(data.len());
    }
    let size = found.u64(buffer::SIZE)?;
    let pages = owner.buffer().pages();
    pages
        .check(offset, size)
        .map_err(|error| found.place(buffer::OFFSET).unreadable(&error))?;
    Ok(size)
}

fn elements(table: &Table<'_>) -> Result<Option<u64>, FormatError> {
    let sizes = table.vector(tensor::SHAPE, 4)?;
    let mut product = Some(1_u64);
    for at in 0..sizes.len().min(MAX_RANK) {
        let size = u64::try_from(sizes.i32(at)?).ok();
        product = product.and_then(|product| product.checked_mul(size?));
    }
    Ok(product)
}

/// Checks that there is one zero point per scale.
fn check_quantization(found: &Table<'_>) -> Result<(), FormatError> {
    let scales = found.vector(quantization::SCALE, 4)?.len();
    let points = found.vector(quantization::ZERO_POINT, 8)?.len();
    if points == 0 || points == scales || points == 1 {
        return Ok(());
    }
    Err(found.place(quantization::ZERO_POINT).expected(
        format_args!("as many zero points as scales, {scales}"),
        points,
    ))
}

/// Returns the signatures as methods or, without signatures, the first subgraph as the only method.
/// The flag is true if the file names its methods; a single method can also be called without its
/// name.
fn methods(
    root: &Table<'_>,
    subgraphs: &[Subgraph<'_>],
) -> Result<(Vec<Method>, bool), FormatError> {
    let methods = signature::read(root, subgraphs)?;
    if !methods.is_empty() {
        let named = methods.len() > 1;
        return Ok((methods, named));
    }
    let Some(main) = subgraphs.first() else {
        return Err(root.place(model::SUBGRAPHS).missing());
    };
    let values = |indices: &[u64]| -> Result<Vec<ModelValue>, FormatError> {
        indices
            .iter()
            .map(|index| main.value(*index, None))
            .collect()
    };
    let method = Method {
        name: "forward".to_owned(),
        inputs: values(&main.inputs)?,
        outputs: values(&main.outputs)?,
        operators: main.operators.clone(),
        ..Method::default()
    };
    Ok((vec![method], false))
}

fn facts(
    root: &Table<'_>,
    subgraphs: &[Subgraph<'_>],
    weights: &StoredWeights,
) -> Result<Vec<(String, String)>, FormatError> {
    let mut facts = vec![("subgraphs".to_owned(), subgraphs.len().to_string())];
    if weights.quantised > 0 {
        let count = weights.quantised.to_string();
        facts.push(("quantised tensors".to_owned(), count));
    }
    let counts = weights.types.iter();
    facts.extend(counts.map(|(name, count)| (format!("{name} elements"), count.to_string())));
    let mut names = Vec::new();
    for found in root.tables(model::METADATA)?.iter_tables() {
        let found = found?;
        found.buffer().keep(TENSOR_COST, || found.here())?;
        names.push(found.name(metadata::NAME)?.unwrap_or_default());
    }
    if !names.is_empty() {
        facts.push(("metadata".to_owned(), names.join(", ")));
    }
    Ok(facts)
}
