//! One request to an attached instance, and its answer.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;

use super::super::bodies::BodyReservation;
use super::super::deadline::CallDeadline;
use super::super::events::DONE;
use super::super::{Answer, Body, CallError, Chunks, Request};
use super::Attached;
use super::message::{self, AnsweredPayload, OTHER_KIND, RequestContent, bad_answer, failed};
use crate::account::AccountId;
use pkgtool_gate::host::{CallEvent, InstanceCall, RemoteInstance};
use pkgtool_gate::protocol::service_to_gate_proto::Body as Sent;
use pkgtool_gate::protocol::{PartialPredictResponseProto, PredictResponseProto, code};

/// The media type of server-sent events.
const EVENTS: &str = "text/event-stream";

/// A request for an attached instance.
#[derive(Debug)]
pub struct AttachedCall {
    attached: Arc<Attached>,
    content: RequestContent,
    /// The answer is wanted in parts.
    is_streamed: bool,
    /// Maximum number of waiting requests.
    queue: usize,
    /// The instance's copy of the body is about as large as the body.
    _memory: Option<Arc<BodyReservation>>,
}

impl AttachedCall {
    /// Prepares a request.
    pub(in super::super) async fn new(
        attached: &Arc<Attached>,
        request: &Request,
        queue: usize,
    ) -> Result<Self, CallError> {
        if !attached.may_answer() {
            let reason = attached.inactive_reason();
            return Err(CallError::Away(reason.unwrap_or_default()));
        }
        Ok(Self {
            attached: Arc::clone(attached),
            is_streamed: message::is_streamed(&request.body).await?,
            content: RequestContent {
                body: request.body.clone(),
                config: request.config.clone(),
                data_type: request.data_type.clone(),
                accept: request.accept.clone(),
            },
            queue,
            _memory: request.memory.clone(),
        })
    }

    /// Asks an instance. Parts of an answer are passed on as they arrive, each within the timeout. Other answers arrive
    /// within the timeout. Dropping the answer cancels the request.
    pub(in super::super) async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let deadline = CallDeadline::after(timeout);
        let (call, first) = deadline.wait(self.first(caller)).await??;
        let worker = label(call.instance());
        let answer = match first {
            CallEvent::Part(part) => return Ok(self.parts(call, (part, false), timeout)),
            CallEvent::Answer(answer) => *answer,
            other => return Err(unexpected(&other, &worker)),
        };
        match answer {
            Sent::PartialPredict(part) if part.start == Some(false) => {
                Ok(self.parts(call, (part, true), timeout))
            }
            Sent::Predict(PredictResponseProto { data })
            | Sent::PartialPredict(PartialPredictResponseProto { data, .. }) => {
                let payload = message::answered(data, &worker)?;
                self.whole(payload, worker)
            }
            _ => Err(bad_answer(OTHER_KIND.to_owned(), &worker)),
        }
    }

    /// Returns the first event of the answer.
    async fn first(&self, caller: AccountId) -> Result<(InstanceCall, CallEvent), CallError> {
        let mut tried = Vec::new();
        let mut is_streamed = self.is_streamed;
        loop {
            let asks =
                |instance: &RemoteInstance| message::asks(&self.content, is_streamed, instance);
            let place = (caller, self.queue);
            let mut call = self.attached.place(place, &tried, asks).await?;
            let first = call.next().await.map_err(|_| CallError::Lost)?;
            let CallEvent::Answer(answer) = &first else {
                return Ok((call, first));
            };
            let Sent::Error(error) = &**answer else {
                return Ok((call, first));
            };
            if error.code == code::TOO_MANY_REQUESTS {
                tried.push(call.instance().number);
            } else if is_streamed && call.instance().is_of_platform() {
                // The platform's SDKs know no answers in parts.
                is_streamed = false;
            } else {
                return Err(failed(error.clone(), &label(call.instance())));
            }
        }
    }

    fn whole(&self, payload: AnsweredPayload, worker: String) -> Result<Answer, CallError> {
        let AnsweredPayload { content_type, body } = payload;
        self.check_size(body.len(), &worker)?;
        Ok(Answer {
            worker: Some(worker),
            ..Answer::whole(body, &content_type)
        })
    }

    /// Returns an answer in parts, which become events.
    fn parts(
        &self,
        call: InstanceCall,
        first: (PartialPredictResponseProto, bool),
        each: Option<Duration>,
    ) -> Answer {
        let worker = label(call.instance());
        let reader = PartReader {
            most: self.attached.max_answer,
            worker: worker.clone(),
            call,
            each,
            read: 0,
            next: Some(first),
        };
        let chunks: Chunks = Box::pin(stream::try_unfold(reader, |mut reader| async move {
            let chunk = reader.chunk().await?;
            Ok(chunk.map(|chunk| (chunk, reader)))
        }));
        Answer {
            status: 200,
            body: Body::Stream(chunks),
            content_type: EVENTS.to_owned(),
            spent: None,
            worker: Some(worker),
        }
    }

    fn check_size(&self, size: usize, worker: &str) -> Result<(), CallError> {
        check_size(size, self.attached.max_answer, worker)
    }
}

fn check_size(size: usize, most: usize, worker: &str) -> Result<(), CallError> {
    if size <= most {
        return Ok(());
    }
    let message = format!("the worker's answer exceeds the limit of {most} bytes");
    Err(bad_answer(message, worker))
}

/// Reads the parts of an answer.
struct PartReader {
    call: InstanceCall,
    worker: String,
    /// Time limit of each part.
    each: Option<Duration>,
    /// Bytes read so far, and their maximum.
    read: usize,
    most: usize,
    /// The next part, and whether it is the last.
    next: Option<(PartialPredictResponseProto, bool)>,
}

impl PartReader {
    /// Returns the next part as an event. After the last one, returns `None`.
    async fn chunk(&mut self) -> Result<Option<Bytes>, CallError> {
        let Some((part, is_last)) = self.next.take() else {
            return Ok(None);
        };
        let mut event = BytesMut::new();
        if let Some(data) = part.data {
            let AnsweredPayload { body, .. } = message::answered(Some(data), &self.worker)?;
            self.read = self.read.saturating_add(body.len());
            check_size(self.read, self.most, &self.worker)?;
            put_event(&mut event, &body);
        }
        if is_last {
            event.put_slice(DONE.as_bytes());
            return Ok(Some(event.freeze()));
        }
        // An event leaves before the next one is awaited.
        if !event.is_empty() {
            self.next = Some((PartialPredictResponseProto::default(), false));
            return Ok(Some(event.freeze()));
        }
        let next = CallDeadline::after(self.each)
            .wait(self.call.next())
            .await?;
        match next.map_err(|_| CallError::Lost)? {
            CallEvent::Part(part) => self.next = Some((part, false)),
            CallEvent::Answer(answer) => match *answer {
                Sent::PartialPredict(part) => self.next = Some((part, true)),
                Sent::Error(error) => return Err(failed(error, &self.worker)),
                _ => return Err(bad_answer(OTHER_KIND.to_owned(), &self.worker)),
            },
            other => return Err(unexpected(&other, &self.worker)),
        }
        Box::pin(self.chunk()).await
    }
}

/// Appends an event. Each line of its data has a field of its own.
fn put_event(event: &mut BytesMut, data: &[u8]) {
    for line in data.split(|byte| matches!(byte, b'\n' | b'\r')) {
        event.put_slice(b"data: ");
        event.put_slice(line);
        event.put_slice(b"\n");
    }
    event.put_slice(b"\n");
}

/// Names an instance: its machine and its number.
pub(crate) fn label(instance: &RemoteInstance) -> String {
    let machine = instance.hostname().map(str::to_owned);
    let machine = machine.or_else(|| instance.arrival.peer.map(|peer| peer.ip().to_string()));
    let machine = machine.unwrap_or_else(|| "worker".to_owned());
    let is_plain = |c: &char| c.is_ascii_alphanumeric() || "-._:".contains(*c);
    let machine: String = machine.chars().filter(is_plain).take(64).collect();
    format!("{machine}/{}", instance.number)
}

fn unexpected(event: &CallEvent, worker: &str) -> CallError {
    let message = match event {
        CallEvent::TooSlow => "the answer was read more slowly than the worker sent it",
        _ => OTHER_KIND,
    };
    bad_answer(message.to_owned(), worker)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::events;

    #[test]
    fn data_of_several_lines_is_one_event() {
        for data in ["{}", "{\n  \"a\": 1\n}", "x\n\nevent: other\r\ndata: y"] {
            let mut event = BytesMut::new();
            put_event(&mut event, data.as_bytes());
            let text = std::str::from_utf8(&event).expect("it is text");
            assert!(
                text.ends_with("\n\n") && !text.trim_end().contains("\n\n"),
                "{text:?}"
            );
            let lines: Vec<&[u8]> = events::data(&event).collect();
            let whole = data.replace("\r\n", "\n\n");
            assert_eq!(lines.join(&b'\n'), whole.as_bytes());
        }
    }
}
