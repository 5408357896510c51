//! Training by an attached instance.

use std::collections::HashMap;
use std::sync::Arc;

use super::super::CallError;
use super::message::{OTHER_KIND, bad_answer, failed};
use super::{Attached, label};
use crate::account::AccountId;
use pkgtool_gate::host::{CallEvent, RemoteInstance};
use pkgtool_gate::instance::Asks;
use pkgtool_gate::protocol::service_to_gate_proto::Body as Sent;
use pkgtool_gate::protocol::{FitRequestProto, code};

/// The end of a training by an instance.
#[derive(Debug)]
pub struct FittedAway {
    /// The instance.
    pub worker: String,
    /// The metrics of the training, as a JSON object; empty if the instance sends none.
    pub metrics: String,
    /// The instance attaches as the service that it trained.
    pub attaches: bool,
}

impl Attached {
    /// Returns whether an instance can be trained, or trains others.
    pub fn is_fittable(&self) -> bool {
        self.instances().all.iter().any(|it| it.is_fittable())
    }

    /// Returns whether the platform's SDKs made the instances that can be trained.
    pub fn fits_like_platform(&self) -> bool {
        let instances = self.instances();
        let mut fittable = instances.all.iter().filter(|it| it.is_fittable());
        fittable.any(|it| !it.attaches_trained())
    }

    /// Lets an instance train. Dropping the future cancels the training.
    pub async fn fit(
        self: &Arc<Self>,
        (caller, queue): (AccountId, usize),
        request: impl Fn(&RemoteInstance) -> FitRequestProto,
        progress: impl Fn(i32),
    ) -> Result<FittedAway, CallError> {
        let instances = self.all().into_iter();
        let others = instances.filter(|it| !it.is_fittable());
        let mut tried: Vec<u64> = others.map(|it| it.number).collect();
        loop {
            let asks = |instance: &RemoteInstance| {
                (Asks::Fit(Box::new(request(instance))), HashMap::new())
            };
            let mut call = self.place((caller, queue), &tried, asks).await?;
            let worker = label(call.instance());
            let answer = loop {
                match call.next().await.map_err(|_| CallError::Lost)? {
                    CallEvent::Progress(percentage) => progress(percentage),
                    CallEvent::Answer(answer) => break *answer,
                    CallEvent::Part(_) | CallEvent::TooSlow => {
                        return Err(bad_answer(OTHER_KIND.to_owned(), &worker));
                    }
                }
            };
            match answer {
                Sent::Fit(fitted) => {
                    return Ok(FittedAway {
                        attaches: call.instance().attaches_trained(),
                        metrics: fitted.metrics,
                        worker,
                    });
                }
                Sent::Error(error) if error.code == code::TOO_MANY_REQUESTS => {
                    tried.push(call.instance().number);
                }
                Sent::Error(error) => return Err(failed(error, &worker)),
                _ => return Err(bad_answer(OTHER_KIND.to_owned(), &worker)),
            }
        }
    }
}
