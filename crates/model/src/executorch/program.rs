//! Reads a whole ExecuTorch program (methods, storage, bundle) and describes it as a [`ModelInfo`].

use std::collections::{BTreeMap, BTreeSet};

use super::container::{BUNDLE_IDENTIFIER, Container, IDENTIFIER};
use super::couple::name_related_dims;
use super::declared::Declarations;
use super::delegate::{CheckedPayloads, PayloadReader};
use super::dynamism::resolve;
use super::flatbuffer::{Buffer, Table};
use super::load::{self, LoadInputs};
use super::plan::MethodPlan;
use super::schema::{plan, program};
use super::shape::PROGRAM;
use super::storage::{Externals, Storage};
use super::verify::verify;
use crate::{ExternalData, FormatError, ModelInfo, NamedData};
use pkgtool_base::source::pages::DEFAULT_BUDGET;
use pkgtool_base::source::{Pages, ReadAt};

/// Base budget of reads for every program.
pub(super) const BASE_BUDGET: u64 = 1_000_000;
/// Additional reads per byte of the FlatBuffer; real programs need less than two.
const BUDGET_PER_BYTE: u64 = 6;

/// Reads the program in `source`.
pub(super) fn inspect(source: &dyn ReadAt) -> Result<ModelInfo, FormatError> {
    let container = Container::find(&Pages::with_budget(source, BASE_BUDGET))?;
    // Offsets may lead to the same table many times, so the budget depends on the header's size.
    let budget = container
        .flatbuffer
        .saturating_mul(BUDGET_PER_BYTE)
        .saturating_add(BASE_BUDGET)
        .min(DEFAULT_BUDGET);
    let pages = Pages::with_budget(source, budget);
    let end = container.start + container.flatbuffer;
    let buffer = Buffer::new(&pages, container.start, end);
    let root = buffer.root("Program")?;
    let mut storage = Storage::read(&root, &container)?;
    let mut externals = Externals::new();
    let payloads = PayloadReader::new(source);
    let mut plans = read_plans(&root, &mut storage, &payloads, &mut externals)?;
    // This follows the readers, whose errors are more specific.
    verify(
        &pages,
        (container.start, container.flatbuffer),
        "Program",
        &PROGRAM,
    )?;
    load::check(
        &root,
        &mut LoadInputs {
            payloads: &mut CheckedPayloads::new(source),
            storage: &mut storage,
            externals: &mut externals,
        },
    )?;
    let declared = Declarations::find(&plans);
    for plan in &mut plans {
        resolve(plan, &declared);
        name_related_dims(plan, &declared);
    }
    Ok(ModelInfo {
        format: "executorch",
        format_by_name: None,
        format_version: IDENTIFIER.to_owned(),
        // The format does not record the exporter.
        producer: None,
        names_methods: true,
        methods: plans.into_iter().map(|plan| plan.method).collect(),
        weight_bytes: storage.weight_bytes()?,
        weight_types: BTreeMap::new(),
        segments: storage.into_segments(&container),
        external: external_data(externals),
        named: Vec::new(),
        metadata: metadata(root.u32(program::VERSION)?, &container),
    })
}

fn read_plans(
    root: &Table<'_>,
    storage: &mut Storage<'_>,
    payloads: &PayloadReader<'_>,
    externals: &mut Externals,
) -> Result<Vec<MethodPlan>, FormatError> {
    let mut plans: Vec<MethodPlan> = Vec::new();
    let mut names = BTreeSet::new();
    for table in root.tables(program::EXECUTION_PLAN)?.iter_tables() {
        let table = table?;
        let plan = MethodPlan::read(&table, storage, payloads, externals)?;
        if !names.insert(plan.method.name.clone()) {
            return Err(table.place(plan::NAME).duplicate_method(&plan.method.name));
        }
        plans.push(plan);
    }
    Ok(plans)
}

fn external_data(tensors: Externals) -> Vec<ExternalData> {
    if tensors.is_empty() {
        return Vec::new();
    }
    vec![ExternalData {
        location: None,
        needs_bytes: None,
        tensors: tensors.len() as u64,
        named: tensors
            .into_iter()
            .map(|(name, tensor)| NamedData { name, tensor })
            .collect(),
    }]
}

fn metadata(version: u32, container: &Container) -> Vec<(String, String)> {
    let mut metadata = Vec::new();
    if version != 0 {
        metadata.push(("program version".to_owned(), version.to_string()));
    }
    if let Some(suites) = &container.bundle {
        metadata.push(("bundled program".to_owned(), BUNDLE_IDENTIFIER.to_owned()));
        for (method, cases) in suites {
            metadata.push((format!("test cases of {method}"), cases.to_string()));
        }
    }
    metadata
}
