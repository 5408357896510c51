//! Admits instances by their tokens, and finds the service of each.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::Notify;

use super::{WorkerInstance, WorkerService, Workers, machine};
use crate::account::{ANY_SERVICE, WorkerToken};
use crate::database::Timestamp;
use crate::service::attached::label;
use pkgtool_gate::host::{Arrival, GateHost, RemoteInstance};
use pkgtool_gate::protocol::{
    ApiErrorProto, ContentRequestProto, ServiceInfoProto, SimpleStatusProto, code, error,
};

/// The place of an admitted instance.
pub struct WorkerTicket {
    /// Its service; `None` if it is a machine that takes packages.
    service: Option<WorkerService>,
    token: WorkerToken,
}

/// Returns the error for a token that is not valid any more.
pub(super) fn token_revoked() -> ApiErrorProto {
    let message =
        "the token was revoked, or has expired; create another with `pkgtool workers token create`";
    error(
        code::TOKEN_REVOKED,
        SimpleStatusProto::BadRequest,
        message.to_owned(),
    )
}

fn unknown_token() -> ApiErrorProto {
    let message = "no service has this token; create one with `pkgtool workers token create`";
    error(
        code::TOKEN_NOT_FOUND,
        SimpleStatusProto::NotFound,
        message.to_owned(),
    )
}

impl Workers {
    async fn token(&self, text: &str) -> Result<WorkerToken, ApiErrorProto> {
        let directory = &self.options.directory;
        let find = || directory.snapshot().worker_token(text).cloned();
        let mut token = find();
        if token.is_none() {
            directory.refresh_for(text).await;
            token = find();
        }
        let token = token.ok_or_else(unknown_token)?;
        if token.is_valid(Timestamp::now()) {
            Ok(token)
        } else {
            Err(token_revoked())
        }
    }
}

/// Returns the place of a machine that takes packages.
fn machine_place(
    token: WorkerToken,
    arrival: &Arrival,
) -> Result<(ServiceInfoProto, WorkerTicket), ApiErrorProto> {
    if arrival.start.worker.is_none() {
        let message = "the token is for `pkgtool worker`, which gets packages of the gateway";
        let status = SimpleStatusProto::BadRequest;
        return Err(error(code::TOKEN_NOT_FOUND, status, message.to_owned()));
    }
    let info = ServiceInfoProto {
        account_id: token.account.0,
        ..ServiceInfoProto::default()
    };
    let service = None;
    Ok((info, WorkerTicket { service, token }))
}

fn info(service: &WorkerService) -> ServiceInfoProto {
    ServiceInfoProto {
        account_id: service.named.owner.0,
        model_id: service.named.id,
        model_name: service.named.name.clone(),
        ..ServiceInfoProto::default()
    }
}

impl GateHost for Workers {
    type Ticket = WorkerTicket;

    async fn admit(
        &self,
        arrival: &Arrival,
    ) -> Result<(ServiceInfoProto, WorkerTicket), ApiErrorProto> {
        let text = &arrival.start.connection_token;
        let placed = self.pool().placed(text).cloned();
        if let Some(placed) = placed {
            let info = info(&placed.service);
            let ticket = WorkerTicket {
                service: Some(placed.service),
                token: placed.token,
            };
            return Ok((info, ticket));
        }
        let token = self.token(text).await?;
        if token.service == ANY_SERVICE {
            return machine_place(token, arrival);
        }
        if arrival.start.worker.is_some() {
            let message = format!(
                "the token is for the service `{}`; a machine without packages needs one of \
                 `pkgtool workers token create --any`",
                token.service
            );
            return Err(error(
                code::TOKEN_NOT_FOUND,
                SimpleStatusProto::BadRequest,
                message,
            ));
        }
        if (self.options.provided)(token.account, &token.service) {
            let message = format!(
                "`{}` is served by a package or a proxy of the gateway; remove it there, or attach under another name",
                token.service
            );
            return Err(error(
                code::SERVICE_PROVIDED,
                SimpleStatusProto::BadRequest,
                message,
            ));
        }
        let key = (token.account, token.service.clone());
        let mut service = self.services().get(&key).cloned();
        if service.is_none() {
            // The token is new.
            let refreshed = self.refresh().await;
            refreshed.map_err(|fault| {
                tracing::warn!(error = %fault, "the tokens of workers could not be read");
                let message = "the gateway's database does not answer".to_owned();
                error(
                    code::FAILED,
                    SimpleStatusProto::InternalServerError,
                    message,
                )
            })?;
            service = self.services().get(&key).cloned();
        }
        let service = service.ok_or_else(unknown_token)?;
        let info = info(&service);
        let service = Some(service);
        Ok((info, WorkerTicket { service, token }))
    }

    fn joined(
        &self,
        instance: &Arc<RemoteInstance>,
        ticket: WorkerTicket,
    ) -> Result<Arc<Notify>, ApiErrorProto> {
        let WorkerTicket { service, token } = ticket;
        let Some(service) = service else {
            tracing::info!(worker = label(instance), "attached for packages");
            self.pool().join(instance, token);
            self.placing.notify_one();
            return Ok(Arc::default());
        };
        let mut instances = self.instances();
        let id = service.named.id;
        let same = |it: &&WorkerInstance| (it.token.id, it.service.named.id) == (token.id, id);
        let same = instances.values().filter(same);
        let limit = self.options.instances_per_token;
        if same.count() >= limit {
            let message =
                format!("{limit} instances are attached with this token, as many as may be");
            return Err(error(
                code::TOO_MANY_INSTANCES,
                SimpleStatusProto::BadRequest,
                message,
            ));
        }
        let machine = machine(token.id, instance);
        if machine.is_some_and(|machine| self.drained().contains(&machine)) {
            instance.drain(true);
        }
        let attached = WorkerInstance {
            instance: Arc::clone(instance),
            service: service.clone(),
            token,
        };
        instances.insert(instance.number, attached);
        drop(instances);
        let (owner, name) = (&service.named.owner_name, &service.named.name);
        tracing::info!(
            worker = label(instance),
            service = format!("{owner}/{name}"),
            "attached"
        );
        Ok(service.attached.join(instance))
    }

    async fn content(&self, request: ContentRequestProto) -> Result<PathBuf, ApiErrorProto> {
        let pool = self.pool();
        let placed = pool.placed(&request.connection_token);
        let file = placed.and_then(|placed| placed.file(&request.sha256));
        file.ok_or_else(|| {
            let message = "no assigned package has this file".to_owned();
            error(code::TOKEN_NOT_FOUND, SimpleStatusProto::NotFound, message)
        })
    }

    fn left(&self, instance: &Arc<RemoteInstance>, reason: &str) {
        if self.pool().leave(instance.number) {
            tracing::info!(worker = label(instance), reason, "left");
            return;
        }
        let Some(left) = self.instances().remove(&instance.number) else {
            return;
        };
        left.service.attached.leave(instance);
        let named = left.service.named;
        let service = format!("{}/{}", named.owner_name, named.name);
        tracing::info!(worker = label(instance), service, reason, "left");
    }
}
