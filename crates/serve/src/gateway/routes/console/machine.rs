//! Route of the console for the machine: its load of the last hour, and every loaded session.

use std::sync::{Arc, LazyLock};

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::super::super::Gateway;
use super::super::super::auth::OperatorCaller;
use super::super::super::error::GatewayError;
use super::super::super::recorder::Sample;
use crate::service::ServiceKind;
use pkgtool_engine::runtime::machine::Machine;

/// This machine, read once.
static MACHINE: LazyLock<Machine> = LazyLock::new(Machine::this);

/// The machine and its load.
#[derive(Debug, Serialize)]
pub(super) struct MachineData {
    machine: &'static Machine,
    /// Maximum memory of all loaded models, in bytes.
    budget: u64,
    samples: Vec<Sample>,
    sessions: Vec<SessionRow>,
}

/// A method of a service with loaded sessions.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SessionRow {
    service: String,
    method: String,
    /// Engine and provider, once it ran.
    engine: Option<String>,
    processes: Vec<u32>,
    bytes: u64,
    waiting: usize,
    running: usize,
    runs: u64,
    crashes: u64,
}

/// Returns the machine's state, for the operator.
pub(super) async fn machine(
    State(gateway): State<Arc<Gateway>>,
    _: OperatorCaller,
) -> Result<Json<MachineData>, GatewayError> {
    Ok(Json(MachineData {
        machine: &MACHINE,
        budget: gateway.engines.budget(),
        samples: gateway.recorder.samples(),
        sessions: sessions(&gateway),
    }))
}

fn sessions(gateway: &Gateway) -> Vec<SessionRow> {
    let mut rows = Vec::new();
    for service in gateway.services.all() {
        let ServiceKind::Device(device) = &service.kind else {
            continue;
        };
        for (method, endpoint) in device.methods_in_use() {
            let (activity, sessions) = (endpoint.activity(), endpoint.sessions());
            rows.push(SessionRow {
                service: service.label().to_string(),
                method,
                engine: endpoint.runs_on().map(|candidate| candidate.to_string()),
                processes: sessions
                    .iter()
                    .filter_map(|session| session.process)
                    .collect(),
                bytes: sessions.iter().map(|session| session.bytes).sum(),
                waiting: activity.waiting,
                running: activity.running,
                runs: activity.runs,
                crashes: activity.crashes,
            });
        }
    }
    rows.sort_by_key(|row| std::cmp::Reverse(row.bytes));
    rows
}
