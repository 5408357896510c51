//! Generates the answer of a chat or completion request on a thread while the client reads it.
//!
//! Invariant: the thread ends soon after the client disconnects or the time limit is reached. Its
//! session then rests for the same account or is released.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::stream;
use serde_json::Value;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use super::super::away::CancelOnDrop;
use super::super::call::TokenUsage;
use super::super::turns::Turn;
use super::super::{Answer, Body, CallError, Refusal, TokenCounts};
use super::request::TextRequest;
use super::slots::SessionSlot;
use super::wire::AnswerWriter;
use super::{CONTEXT_LENGTH_EXCEEDED, LoadedText, TextEndpoint, refused};
use crate::account::AccountId;
use pkgtool_engine::runtime::parsers::ParserClient;
use pkgtool_media::answer::{ReplyAnswer, TypedAnswer};
use pkgtool_text::decoder::{DecodeError, PictureRows};
use pkgtool_text::generation::{
    DetokenizeError, Generated, GenerationError, GenerationEvent, GenerationUsage, Transcripts,
    generate,
};
use pkgtool_text::model::{PreparedRequest, TextError};
use pkgtool_text::template::Renderer;

/// Media types of answers.
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// A checked request and the model that answers it.
#[derive(Debug)]
pub struct PreparedText {
    endpoint: Arc<TextEndpoint>,
    asked: TextRequest,
    /// Name of the service.
    name: String,
}

/// A message from the generating thread to the reader.
enum GenerationMessage {
    /// Generation has started.
    Begun,
    /// An event of the stream, encoded for sending.
    Sent(Bytes),
    /// A complete, unstreamed answer.
    Whole(Bytes),
    /// Generation failed.
    Failed(CallError),
}

/// The work of a generating thread.
struct GenerationWork {
    endpoint: Arc<TextEndpoint>,
    asked: TextRequest,
    name: String,
    caller: AccountId,
    runtime: Handle,
    patience: TimeLimit,
    reader: ReaderChannel,
    spent: Arc<TokenUsage>,
    /// Client of the parser processes for this request.
    client: ParserClient,
    _turn: Turn,
}

/// Time limit of an answer: for the whole answer, or in a stream for the first token and then each
/// further one.
struct TimeLimit {
    after: Option<Duration>,
    until: Cell<Option<Instant>>,
    is_stream: bool,
}

/// Channel to the reader.
struct ReaderChannel {
    sender: mpsc::UnboundedSender<GenerationMessage>,
    gone: Arc<AtomicBool>,
}

/// Dropping it signals that the client disconnected, and cancels the request's jobs in parser
/// processes.
struct DisconnectGuard {
    gone: Arc<AtomicBool>,
    _leaving: CancelOnDrop,
}

impl PreparedText {
    pub(in super::super) fn new(
        endpoint: Arc<TextEndpoint>,
        asked: TextRequest,
        name: String,
    ) -> Self {
        Self {
            endpoint,
            asked,
            name,
        }
    }

    /// Answers the request. Dropping the future, or the returned stream, stops the generation.
    pub(in super::super) async fn predict(
        self,
        caller: AccountId,
        timeout: Option<Duration>,
    ) -> Result<Answer, CallError> {
        let is_stream = self.asked.streaming().stream;
        let patience = TimeLimit::new(timeout, is_stream);
        let turn = self.endpoint.turns.take(caller);
        let turn = match timeout {
            None => turn.await?,
            Some(after) => tokio::time::timeout(after, turn)
                .await
                .map_err(|_| CallError::Timeout { after })??,
        };
        // The channel never holds more messages than the model's context has tokens.
        let (sender, mut receiver) = mpsc::unbounded_channel();
        let gone = Arc::new(AtomicBool::new(false));
        let client = self.endpoint.engines.parsers(caller);
        let listening = DisconnectGuard {
            gone: Arc::clone(&gone),
            _leaving: CancelOnDrop(client.clone()),
        };
        let spent = Arc::new(TokenUsage::default());
        let work = GenerationWork {
            endpoint: self.endpoint,
            asked: self.asked,
            name: self.name,
            caller,
            runtime: Handle::current(),
            patience,
            reader: ReaderChannel { sender, gone },
            spent: Arc::clone(&spent),
            client,
            _turn: turn,
        };
        tokio::task::spawn_blocking(move || work.run());
        loop {
            match receiver.recv().await {
                Some(GenerationMessage::Begun) if is_stream => break,
                Some(GenerationMessage::Whole(body)) => {
                    return Ok(Answer {
                        status: 200,
                        body: Body::Whole(body),
                        content_type: JSON.to_owned(),
                        spent: Some(spent),
                        worker: None,
                    });
                }
                Some(GenerationMessage::Failed(error)) => return Err(error),
                Some(GenerationMessage::Begun | GenerationMessage::Sent(_)) => {}
                None => return Err(died()),
            }
        }
        let chunks = stream::unfold(
            (receiver, listening, false),
            |(mut receiver, listening, over)| async move {
                if over {
                    return None;
                }
                match receiver.recv().await? {
                    GenerationMessage::Sent(bytes) | GenerationMessage::Whole(bytes) => {
                        Some((Ok(bytes), (receiver, listening, false)))
                    }
                    GenerationMessage::Begun => {
                        Some((Ok(Bytes::new()), (receiver, listening, false)))
                    }
                    GenerationMessage::Failed(error) => {
                        Some((Err(error), (receiver, listening, true)))
                    }
                }
            },
        );
        Ok(Answer {
            status: 200,
            body: Body::Stream(Box::pin(chunks)),
            content_type: EVENTS.to_owned(),
            spent: Some(spent),
            worker: None,
        })
    }
}

impl GenerationWork {
    fn run(self) {
        if let Err(error) = self.answer() {
            let error = self.endpoint.without_paths(error);
            self.reader.tell(GenerationMessage::Failed(error));
        }
    }

    fn answer(&self) -> Result<(), CallError> {
        let loaded = self.endpoint.loaded(&self.client)?;
        let pictures = self.pictures(loaded)?;
        let prompted = self.prompted(loaded, &pictures)?;
        let has_logprobs = prompted.iter().any(PreparedRequest::has_logprobs);
        let tokenizer = Arc::clone(loaded.text.tokenizer());
        let choices = self.asked.prompts() * self.asked.choices();
        let form = self.asked.form(&self.name, has_logprobs);
        let mut writer =
            AnswerWriter::new(form, tokenizer, uuid::Uuid::now_v7().as_u128(), choices);
        let is_stream = self.asked.streaming().stream;
        let mut sum = GenerationUsage::default();
        let mut is_begun = false;
        for (place, prompted) in prompted.into_iter().enumerate() {
            let first = place * self.asked.choices();
            let generated = self.generate(loaded, (prompted, &pictures), &mut |event| {
                if !std::mem::replace(&mut is_begun, true) {
                    self.reader.tell(GenerationMessage::Begun);
                }
                let event = shift_choice(event, first);
                if is_stream {
                    let chunks = writer.chunks(event);
                    for chunk in &chunks {
                        self.reader.send(chunk);
                    }
                } else {
                    writer.take(event);
                }
            })?;
            sum.prompt_tokens += generated.usage.prompt_tokens;
            sum.completion_tokens += generated.usage.completion_tokens;
            sum.cached_tokens += generated.usage.cached_tokens;
            self.patience.check()?;
        }
        if is_stream {
            if let Some(last) = writer.last(&sum) {
                self.reader.send(&last);
            }
            self.reader.tell(GenerationMessage::Sent(Bytes::from_static(
                b"data: [DONE]\n\n",
            )));
        } else {
            let whole = writer.whole(&sum);
            let body = match &self.asked {
                TextRequest::Reply(_) => reply_of(&whole),
                TextRequest::Chat(_) | TextRequest::Completion(_) => whole,
            };
            let body = body.to_string();
            self.reader.tell(GenerationMessage::Whole(body.into()));
        }
        Ok(())
    }

    /// Returns the embeddings of the request's pictures: those of an earlier turn, or new ones.
    fn pictures(&self, loaded: &LoadedText) -> Result<Vec<PictureRows>, CallError> {
        let (Some(chat), Some(encoder)) = (self.asked.chat(), &loaded.companions.pictures) else {
            return Ok(Vec::new());
        };
        chat.each_picture(|picture| {
            self.patience.check()?;
            if let Some(rows) = loaded.slots.picture(self.caller, picture.id) {
                return Ok(rows);
            }
            let place = self.asked.place(picture);
            let caller = (self.caller, &self.runtime);
            encoder.rows((picture, &place), caller, &self.client)
        })
    }

    fn prompted(
        &self,
        loaded: &LoadedText,
        pictures: &[PictureRows],
    ) -> Result<Vec<PreparedRequest>, CallError> {
        let slots = loaded.text.picture_slots(pictures);
        let slots = slots.map_err(|error| refused(&error))?;
        let prompted = match &self.asked {
            TextRequest::Chat(chat) | TextRequest::Reply(chat) => {
                let renderer = Renderer::by(self.client.clone());
                loaded
                    .text
                    .chat(chat, &renderer, slots.as_ref())
                    .map(|prompted| vec![prompted])
            }
            TextRequest::Completion(asked) => {
                let prompts = asked.prompts.iter();
                prompts
                    .map(|prompt| loaded.text.completion(asked, prompt))
                    .collect()
            }
        };
        prompted.map_err(|error| refused(&error))
    }

    /// Answers one prompt in a slot, preferably one that already holds the beginning of the prompt.
    fn generate(
        &self,
        loaded: &LoadedText,
        (prompted, pictures): (PreparedRequest, &[PictureRows]),
        tell: &mut dyn FnMut(GenerationEvent),
    ) -> Result<Generated, CallError> {
        let tokenizer = loaded.text.tokenizer().on_behalf(self.client.clone());
        let tokenizer = &Arc::new(tokenizer);
        let whole = prompted.tokens(tokenizer, &mut Transcripts::default());
        let whole = whole.map_err(|error| refused(&error))?;
        // This must not encode text, because others wait for their slots meanwhile.
        let common = |slot: &mut SessionSlot| match prompted.begun(&mut slot.transcripts) {
            Some(begun) => slot.common(&begun),
            None => slot.common(&whole),
        };
        let slot = loaded.slots.take(self.caller, common);
        let mut slot = slot.unwrap_or_else(|| loaded.slot(self.caller, self.runtime.clone()));
        slot.decoder.steps().set_pictures(pictures.to_vec());
        let _on_its_way = slot.decoder.steps().inner().on_its_way();
        let tokens = match prompted.begun(&mut slot.transcripts) {
            Some(_) => prompted.tokens(tokenizer, &mut slot.transcripts),
            None => Ok(whole),
        };
        let tokens = tokens.map_err(|error| refused(&error))?;
        let text = prompted.text().map(str::to_owned);
        let request = prompted.request(tokens.clone(), tokenizer);
        let going_on = || !self.reader.is_gone() && self.patience.check().is_ok();
        let generated = generate(&mut slot.decoder, request, &going_on, &mut |event| {
            tell(event);
            self.patience.renew();
            if self.reader.is_gone() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        let generated = match generated {
            Ok(generated) => generated,
            Err(error) => {
                // An invalid request leaves the session unchanged.
                if error.is_of_request() {
                    loaded.slots.give_back(slot);
                }
                return Err(failed(error));
            }
        };
        self.spend(&generated.usage);
        if let (Some(text), Some(said)) = (text, generated.choices.last())
            && let Some(whole) = said.tokens_in_text
        {
            let mut tokens = tokens;
            tokens.extend(&said.tokens[..whole]);
            let text = format!("{text}{}", said.text);
            slot.transcripts.keep(text, tokens);
        }
        loaded.slots.give_back(slot);
        Ok(generated)
    }

    fn spend(&self, usage: &GenerationUsage) {
        self.spent.add(TokenCounts {
            prompt: usage.prompt_tokens as u64,
            completion: usage.completion_tokens as u64,
            cached: usage.cached_tokens as u64,
        });
    }
}

impl TimeLimit {
    fn new(after: Option<Duration>, is_stream: bool) -> Self {
        let patience = Self {
            after,
            until: Cell::default(),
            is_stream,
        };
        patience.begin();
        patience
    }

    fn begin(&self) {
        // A limit beyond the clock's range means no deadline.
        let until = self
            .after
            .and_then(|after| Instant::now().checked_add(after));
        self.until.set(until);
    }

    /// Restarts the time limit after a token of a stream.
    fn renew(&self) {
        if self.is_stream {
            self.begin();
        }
    }

    fn check(&self) -> Result<(), CallError> {
        match (self.after, self.until.get()) {
            (Some(after), Some(until)) if Instant::now() >= until => {
                Err(CallError::Timeout { after })
            }
            _ => Ok(()),
        }
    }
}

impl ReaderChannel {
    fn tell(&self, told: GenerationMessage) {
        // The message is dropped if the reader is gone; the generation then ends by itself.
        let _ = self.sender.send(told);
    }

    fn send(&self, chunk: &Value) {
        self.tell(GenerationMessage::Sent(format!("data: {chunk}\n\n").into()));
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

impl Drop for DisconnectGuard {
    fn drop(&mut self) {
        self.gone.store(true, Ordering::Relaxed);
    }
}

/// Shifts the choice index of an event.
fn shift_choice(mut event: GenerationEvent, by: usize) -> GenerationEvent {
    match &mut event {
        GenerationEvent::Token { choice, .. }
        | GenerationEvent::Piece { choice, .. }
        | GenerationEvent::Finish { choice, .. } => {
            *choice += by;
        }
    }
    event
}

/// Returns the text of a chat completion as an answer about a picture.
fn reply_of(completion: &Value) -> Value {
    let text = &completion["choices"][0]["message"]["content"];
    let text = text.as_str().unwrap_or_default().to_owned();
    TypedAnswer::Reply(ReplyAnswer { text }).to_json()
}

fn failed(error: GenerationError) -> CallError {
    let own = |cause: DetokenizeError| match cause.downcast::<CallError>() {
        Ok(own) => *own,
        Err(cause) => CallError::Failed(cause.to_string()),
    };
    match error {
        GenerationError::Decode(DecodeError::Step(cause)) => own(cause),
        // This concerns a prompt; generation simply ends at the limit.
        GenerationError::Decode(DecodeError::BeyondContext { cause, .. }) => match own(cause) {
            CallError::Refused(refusal) => CallError::Refused(Refusal {
                code: Some(CONTEXT_LENGTH_EXCEEDED),
                ..refusal
            }),
            other => other,
        },
        error => refused(&TextError::from(error)),
    }
}

fn died() -> CallError {
    CallError::Failed("the generating thread ended without an answer".to_owned())
}
