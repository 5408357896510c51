//! The generation loop over a mock model: the tokens it feeds, the events it reports, and when it
//! ends.

use std::cell::Cell;
use std::ops::ControlFlow;

use pkgtool_text::answer::{AnswerFormat, CallFamily, OfferedTool, Piece, Reasoning};
use pkgtool_text::constraint::{
    CallChoice, Callable, Constrainer, Constraint, Grammar, VocabularyBytes,
};
use pkgtool_text::decoder::{DecodeError, Decoder};
use pkgtool_text::ends::EndTokens;
use pkgtool_text::generation::{
    Detokenize, DetokenizeError, FinishReason, Generated, Generation, GenerationError,
    GenerationEvent, GenerationProgress, GenerationRequest, generate,
};
use pkgtool_text::sampling::Sampling;
use pkgtool_text::stop::StopStrings;
use serde_json::{Value, json};

const END: u32 = 256;
/// Tokens after the 256 byte tokens and the end token: several bytes, or half a character.
const WORDS: [&[u8]; 4] = [b"wor", b"ld", b"</think>", b"\xc3"];

fn bytes_of(token: u32) -> Vec<u8> {
    match u8::try_from(token) {
        Ok(byte) => vec![byte],
        Err(_) if token == END => Vec::new(),
        Err(_) => WORDS[token as usize - 257].to_vec(),
    }
}

/// Returns the logits of the next token for the tokens held; all other tokens have logit 0.
type Likes = dyn Fn(&[u32]) -> Vec<(u32, f32)>;

/// A mock model whose logits are a function of the tokens that it holds.
struct Table {
    likes: Box<Likes>,
    context: usize,
    /// The actual maximum number of tokens, which the model does not report.
    hidden: usize,
    held: Vec<u32>,
    /// Numbers of tokens fed per step.
    fed: Vec<usize>,
    logits: Vec<f32>,
}

impl Table {
    fn new(likes: impl Fn(&[u32]) -> Vec<(u32, f32)> + 'static) -> Self {
        Self {
            likes: Box::new(likes),
            context: 1000,
            hidden: 1000,
            held: Vec::new(),
            fed: Vec::new(),
            logits: Vec::new(),
        }
    }

    /// A model that generates `tokens` after any prompt of `prompt` tokens.
    fn saying(prompt: usize, tokens: &[u32]) -> Self {
        let tokens = tokens.to_vec();
        Self::new(move |held| {
            let place = held.len().checked_sub(prompt);
            let next = place.and_then(|place| tokens.get(place)).copied();
            vec![(next.unwrap_or(END), 9.0)]
        })
    }
}

impl Decoder for Table {
    fn vocabulary(&self) -> usize {
        // More logits than tokens in the vocabulary, as real models have.
        320
    }

    fn context(&self) -> usize {
        self.context
    }

    fn held(&self) -> &[u32] {
        &self.held
    }

    fn cut(&mut self, length: usize) -> Result<(), DecodeError> {
        self.held.truncate(length);
        Ok(())
    }

    fn feed(
        &mut self,
        tokens: &[u32],
        going_on: &dyn Fn() -> bool,
    ) -> Result<&mut [f32], DecodeError> {
        assert!(!tokens.is_empty() && self.held.len() + tokens.len() <= self.context);
        if !going_on() {
            return Err(DecodeError::Disconnected);
        }
        let held = self.held.len();
        if held + tokens.len() > self.hidden {
            let cause = "index 7 is out of range".into();
            return Err(DecodeError::BeyondContext { held, cause });
        }
        self.held.extend(tokens);
        self.fed.push(tokens.len());
        self.logits = vec![0.0; 320];
        self.logits[300] = 50.0;
        for (token, logit) in (self.likes)(&self.held) {
            self.logits[token as usize] = logit;
        }
        Ok(&mut self.logits)
    }
}

/// A detokenizer that converts bytes to text.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Detokenize for Bytes {
    fn push(&mut self, token: u32) -> Result<String, DetokenizeError> {
        self.0.extend(bytes_of(token));
        let valid = match std::str::from_utf8(&self.0) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let rest = self.0.split_off(valid);
        let text = std::mem::replace(&mut self.0, rest);
        Ok(String::from_utf8(text)?)
    }

    fn finish(&mut self) -> Result<String, DetokenizeError> {
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned())
    }
}

fn tokens(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn request(prompt: &str) -> GenerationRequest {
    GenerationRequest {
        prompt: tokens(prompt),
        sampling: Sampling {
            temperature: 0.0,
            ..Sampling::default()
        },
        stops: StopStrings::default(),
        ends: EndTokens::from_iter([END]),
        max_tokens: None,
        choices: 1,
        reading: AnswerFormat::plain(),
        constraint: None,
        vocabulary_size: 257 + WORDS.len(),
        detokenizer: Box::new(|| Ok(Box::new(Bytes::default()))),
        prefill_chunk: 512,
    }
}

/// Runs a request. Returns the result, the text of each choice, and all events.
fn run(
    table: &mut Table,
    request: GenerationRequest,
) -> (Generated, Vec<String>, Vec<GenerationEvent>) {
    let choices = request.choices;
    let mut events = Vec::new();
    let mut tell = |event| {
        events.push(event);
        ControlFlow::Continue(())
    };
    let generated = generate(table, request, &|| true, &mut tell).expect("the input is valid");
    let mut texts = vec![String::new(); choices];
    for event in &events {
        if let GenerationEvent::Piece {
            choice,
            piece: Piece::Content(text),
        } = event
        {
            texts[*choice] += text;
        }
    }
    (generated, texts, events)
}

fn error(table: &mut Table, request: GenerationRequest) -> GenerationError {
    let mut tell = |_| ControlFlow::Continue(());
    generate(table, request, &|| true, &mut tell).expect_err("the input is rejected")
}

#[test]
fn a_model_says_what_its_table_says() {
    let mut table = Table::saying(2, &[tokens("Hi "), vec![257, 258], tokens("é")].concat());
    let (generated, texts, events) = run(&mut table, request("ab"));
    assert_eq!(texts, ["Hi worldé"]);
    let said = &generated.choices[0];
    assert_eq!(said.text, "Hi worldé");
    assert_eq!(
        (said.tokens.len(), said.tokens_in_text, said.finish),
        (8, Some(7), Some(FinishReason::Stop))
    );
    assert_eq!(generated.usage.prompt_tokens, 2);
    assert_eq!(generated.usage.completion_tokens, 8, "the end token counts");
    assert_eq!(
        events.last(),
        Some(&GenerationEvent::Finish {
            choice: 0,
            reason: FinishReason::Stop
        })
    );
    // No event contains half a character, although the character came in two tokens.
    let pieces = events
        .iter()
        .filter(|event| matches!(event, GenerationEvent::Piece { .. }));
    assert_eq!(pieces.count(), 6);
    assert_eq!(table.held.len(), 9, "the end token is not fed");
    assert!(
        generated
            .usage
            .tokens_per_second(&generated.timings)
            .is_some()
    );
}

#[test]
fn what_the_model_holds_is_not_fed_again() {
    let mut table = Table::saying(4, &tokens("xy"));
    run(&mut table, request("abcd"));
    assert_eq!(table.fed, [4, 1, 1]);
    // The next turn begins with all tokens held.
    table.likes = Box::new(|_| vec![(END, 9.0)]);
    let (generated, ..) = run(&mut table, request("abcdxyef"));
    assert_eq!((generated.usage.cached_tokens, table.fed[3]), (6, 2));
    // This prompt differs from the held tokens after three tokens.
    let (generated, ..) = run(&mut table, request("abcef"));
    assert_eq!((generated.usage.cached_tokens, table.fed[4]), (3, 2));
    assert_eq!(table.held, tokens("abcef"));
    // The same prompt again: only its last token is fed, for the logits.
    let (generated, ..) = run(&mut table, request("abcef"));
    assert_eq!((generated.usage.cached_tokens, table.fed[5]), (4, 1));
    // A prefix of the held tokens.
    let (generated, ..) = run(&mut table, request("ab"));
    assert_eq!((generated.usage.cached_tokens, table.fed[6]), (1, 1));
}

#[test]
fn lengths_are_held() {
    let mut table = Table::saying(2, &tokens("abcdefghij"));
    let short = GenerationRequest {
        max_tokens: Some(3),
        ..request("ab")
    };
    let (generated, texts, _) = run(&mut table, short);
    assert_eq!(
        (texts[0].as_str(), generated.choices[0].finish),
        ("abc", Some(FinishReason::Length))
    );
    assert_eq!(table.held.len(), 4, "the last token need not be fed");
    table.context = 6;
    table.held.clear();
    let (generated, texts, _) = run(&mut table, request("ab"));
    assert_eq!(
        (texts[0].as_str(), generated.choices[0].finish),
        ("abcd", Some(FinishReason::Length))
    );
    let told = error(
        &mut table,
        GenerationRequest {
            max_tokens: Some(5),
            ..request("ab")
        },
    )
    .to_string();
    assert!(
        told.contains(
            "2 tokens and `max_tokens` is 5, together 7; the model's context is 6 tokens"
        ),
        "{told}"
    );
    let told = error(&mut table, request("abcdef")).to_string();
    assert!(
        told.contains("the prompt has 6 tokens, but the model's context is 6 tokens"),
        "{told}"
    );
    for (wrong, words) in [
        (request(""), "the prompt is empty"),
        (
            GenerationRequest {
                max_tokens: Some(0),
                ..request("a")
            },
            "`max_tokens` must be at least 1",
        ),
        (
            GenerationRequest {
                max_tokens: Some(usize::MAX),
                ..request("a")
            },
            "the prompt has 1 tokens",
        ),
        (
            GenerationRequest {
                choices: 0,
                ..request("a")
            },
            "`n` must be at least 1",
        ),
    ] {
        let error = error(&mut table, wrong);
        assert!(
            error.to_string().contains(words) && error.is_of_request(),
            "{error}"
        );
    }
}

#[test]
fn stop_strings_end_wherever_tokens_do() {
    for (stops, text, finish) in [
        (json!("worl"), "Hello ", FinishReason::Stop),
        (json!(["o w", "never"]), "Hell", FinishReason::Stop),
        (json!("rld!?"), "Hello world!", FinishReason::Stop),
        (json!("H"), "", FinishReason::Stop),
    ] {
        let said = [tokens("Hello "), vec![257, 258], tokens("!")].concat();
        let mut table = Table::saying(1, &said);
        let stops = StopStrings::read(Some(&stops)).expect("the input is valid");
        let (generated, texts, _) = run(
            &mut table,
            GenerationRequest {
                stops,
                ..request("a")
            },
        );
        assert_eq!(
            (texts[0].as_str(), generated.choices[0].finish),
            (text, Some(finish))
        );
    }
}

#[test]
fn the_same_seed_says_the_same_and_choices_differ() {
    let even = || Table::new(|_| (97..123).map(|letter| (letter, 15.0)).collect());
    let drawn = |seed| GenerationRequest {
        sampling: Sampling {
            seed,
            ..Sampling::default()
        },
        max_tokens: Some(12),
        choices: 3,
        ..request("prompt")
    };
    let mut table = even();
    let (generated, texts, _) = run(&mut table, drawn(Some(5)));
    assert_eq!(generated.usage.completion_tokens, 36);
    assert_eq!(generated.usage.prompt_tokens, 6);
    assert_eq!(
        table.fed.iter().filter(|fed| **fed > 1).count(),
        1,
        "the prompt is fed once"
    );
    assert_eq!(
        texts.iter().map(String::len).collect::<Vec<_>>(),
        [12, 12, 12]
    );
    assert!(texts[0] != texts[1] && texts[1] != texts[2]);
    assert_eq!(run(&mut even(), drawn(Some(5))).1, texts);
    assert_ne!(run(&mut even(), drawn(Some(6))).1, texts);
    assert_ne!(
        run(&mut even(), drawn(None)).1,
        run(&mut even(), drawn(None)).1
    );
    // A choice is independent of the number of choices.
    let alone = GenerationRequest {
        choices: 1,
        ..drawn(Some(5))
    };
    assert_eq!(run(&mut even(), alone).1[0], texts[0]);
}

#[test]
fn choices_begin_behind_the_prompt() {
    let (mut table, said) = (Table::saying(3, &tokens("xyz")), Some(FinishReason::Stop));
    let (generated, texts, events) = run(
        &mut table,
        GenerationRequest {
            choices: 2,
            ..request("abc")
        },
    );
    assert_eq!(texts, ["xyz", "xyz"]);
    assert!(generated.choices.iter().all(|choice| choice.finish == said));
    assert_eq!(table.fed, [3, 1, 1, 1, 1, 1, 1]);
    let ends = events
        .iter()
        .filter(|event| matches!(event, GenerationEvent::Finish { .. }));
    assert_eq!(ends.count(), 2);
}

#[test]
fn nothing_goes_on_for_a_caller_who_has_gone() {
    let mut table = Table::saying(2, &tokens("abcdefghij"));
    let mut told = 0;
    let mut tell = |_| {
        told += 1;
        if told == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let generated =
        generate(&mut table, request("ab"), &|| true, &mut tell).expect("the input is valid");
    assert_eq!(
        (
            generated.choices[0].tokens.len(),
            generated.choices[0].finish
        ),
        (3, None)
    );
    assert_eq!(table.held.len(), 4);

    let asked = Cell::new(0);
    let going_on = || {
        asked.set(asked.get() + 1);
        asked.get() < 6
    };
    let mut table = Table::saying(2, &tokens("abcdefghij"));
    let mut tell = |_| ControlFlow::Continue(());
    let generated =
        generate(&mut table, request("ab"), &going_on, &mut tell).expect("the input is valid");
    assert_eq!(generated.choices[0].finish, None);
    assert_eq!(generated.usage.completion_tokens, 2);

    let mut table = Table::saying(2, &[]);
    let generated =
        generate(&mut table, request("ab"), &|| false, &mut tell).expect("the input is valid");
    assert!(generated.choices.is_empty() && table.fed.is_empty());
}

#[test]
fn long_prompts_are_fed_in_parts_and_generations_take_turns() {
    let prompt = "a".repeat(25);
    let begin = |table: &mut Table| {
        let parts = GenerationRequest {
            prefill_chunk: 10,
            max_tokens: Some(2),
            ..request(&prompt)
        };
        Generation::begin(parts, table).expect("the input is valid")
    };
    let mut tables = [
        Table::saying(25, &tokens("xy")),
        Table::saying(25, &tokens("zz")),
    ];
    let mut running: Vec<_> = tables.iter_mut().map(begin).map(Some).collect();
    let mut events = [Vec::new(), Vec::new()];
    let mut steps = 0;
    while running.iter().any(Option::is_some) {
        steps += 1;
        for place in 0..2 {
            let Some(mut generation) = running[place].take() else {
                continue;
            };
            let table = &mut tables[place];
            let progress = generation
                .step(table, &|| true, &mut events[place])
                .expect("the input is valid");
            if progress == GenerationProgress::More {
                running[place] = Some(generation);
            } else {
                assert_eq!(generation.finish().choices.len(), 1);
            }
        }
    }
    assert_eq!(steps, 4);
    assert!(tables.iter().all(|table| table.fed == [10, 10, 5, 1]));
    let piece = |text: &str| GenerationEvent::Piece {
        choice: 0,
        piece: Piece::Content(text.to_owned()),
    };
    assert_eq!(events[1][..2], [piece("z"), piece("z")]);
}

fn constrained(grammar: &Grammar) -> Constraint {
    let words = VocabularyBytes {
        bytes: (0..257 + u32::try_from(WORDS.len()).expect("the input is valid"))
            .map(bytes_of)
            .collect(),
        ends: vec![END],
    };
    Constrainer::new(words)
        .expect("the input is valid")
        .constrain(grammar)
        .expect("the input is valid")
}

/// A model that prefers the letters of this text, repeated, and gives the end token a lower logit.
fn rambling(text: &'static str) -> Table {
    Table::new(move |held| {
        let letter = text.as_bytes()[held.len() % text.len()];
        vec![(u32::from(letter), 5.0), (END, 1.0)]
    })
}

#[test]
fn constrained_answers_are_what_was_asked_for() {
    let schema = json!({"type": "object", "properties": {"size": {"type": "integer"},
        "name": {"enum": ["small", "large"]}}, "required": ["size", "name"],
        "additionalProperties": false});
    let grammar = Grammar::of_schema(&schema, "schema").expect("the input is valid");
    for text in ["bad words { la", "\"}5", "é12é"] {
        let constraint = Some(constrained(&grammar));
        let held = GenerationRequest {
            constraint,
            choices: 2,
            ..request("x")
        };
        let (generated, texts, _) = run(&mut rambling(text), held);
        for (choice, text) in generated.choices.iter().zip(&texts) {
            assert_eq!(choice.finish, Some(FinishReason::Stop), "{text}");
            let value: Value = serde_json::from_str(text).expect("the input is valid");
            assert!(
                value["size"].is_number() && value["name"].is_string(),
                "{text}"
            );
        }
    }
    let constraint = Some(constrained(&grammar));
    let cut = GenerationRequest {
        constraint,
        max_tokens: Some(5),
        ..request("x")
    };
    let (generated, ..) = run(&mut rambling("la"), cut);
    assert_eq!(generated.choices[0].finish, Some(FinishReason::Length));
}

#[test]
fn required_calls_come_behind_reasoning() {
    let tools = [Callable {
        name: "now".to_owned(),
        parameters: Some(json!({"type": "object",
        "additionalProperties": false})),
    }];
    let grammar = Grammar::of_calls(&tools, CallChoice::Any, false).expect("the input is valid");
    let reading = AnswerFormat {
        family: Some(CallFamily::Required),
        tools: vec![OfferedTool {
            name: "now".to_owned(),
            parameters: None,
        }],
        reasoning: Reasoning::Begun,
    };
    let thought = [tokens("Hm, "), vec![257, 259]].concat();
    let mut table = Table::new(move |held| match thought.get(held.len() - 1) {
        Some(token) => vec![(*token, 9.0)],
        None => vec![(u32::from(b']'), 5.0), (u32::from(b'}'), 4.0), (END, 9.0)],
    });
    let constraint = Some(constrained(&grammar));
    let (generated, texts, events) = run(
        &mut table,
        GenerationRequest {
            constraint,
            reading,
            ..request("x")
        },
    );
    assert_eq!(generated.choices[0].finish, Some(FinishReason::ToolCalls));
    assert_eq!(FinishReason::ToolCalls.name(), "tool_calls");
    assert_eq!(texts, [""]);
    let pieces: Vec<&Piece> = events
        .iter()
        .filter_map(|event| match event {
            GenerationEvent::Piece { piece, .. } => Some(piece),
            _ => None,
        })
        .collect();
    let thought: String = pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Reasoning(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(thought, "Hm, wor");
    assert!(
        pieces
            .iter()
            .any(|piece| matches!(piece, Piece::Call { name, .. } if name == "now"))
    );
    let arguments = |piece: &&Piece| matches!(piece, Piece::Arguments { text, .. } if text == "{}");
    assert!(pieces.iter().any(arguments), "{pieces:?}");
}

#[test]
fn probabilities_are_told_where_they_are_asked_for() {
    let mut table = Table::saying(1, &tokens("x"));
    let sampling = Sampling {
        logprobs: Some(2),
        ..request("a").sampling
    };
    let (_, _, events) = run(
        &mut table,
        GenerationRequest {
            sampling,
            ..request("a")
        },
    );
    let chosen: Vec<_> = events
        .iter()
        .filter_map(|event| match event {
            GenerationEvent::Token { chosen, top, .. } => {
                Some((chosen.token, chosen.logprob, top.len()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(
        chosen.iter().map(|it| (it.0, it.2)).collect::<Vec<_>>(),
        [(120, 2), (END, 2)]
    );
    // The softmax covers 260 other tokens; the logits beyond the vocabulary are ignored.
    let expected = 9.0 - (9.0_f32.exp() + 260.0).ln();
    assert!((chosen[0].1 - expected).abs() < 1e-5, "{}", chosen[0].1);
}

#[test]
fn failures_are_errors() {
    let mut table = Table::new(|_| vec![(5, f32::NAN)]);
    let error = error(&mut table, request("a"));
    assert!(
        error
            .to_string()
            .contains("the model computed NaN for token 5"),
        "{error}"
    );
    assert!(!error.is_of_request());
    // An incomplete character at the end becomes a replacement character, so the text has no token
    // count.
    let mut table = Table::saying(1, &[260]);
    let (generated, texts, _) = run(&mut table, request("a"));
    assert_eq!(
        (texts[0].as_str(), generated.choices[0].tokens_in_text),
        ("\u{fffd}", None)
    );
}

#[test]
fn a_generation_can_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Generation>();
}

#[test]
fn an_answer_ends_where_the_model_holds_no_more() {
    let mut table = Table::saying(2, &tokens("ab").repeat(50));
    table.hidden = 10;
    let more = GenerationRequest {
        choices: 2,
        ..request("12")
    };
    let (generated, texts, events) = run(&mut table, more);
    // Eight tokens were fed and one more was chosen.
    assert_eq!(texts, ["ababababa", "ababababa"]);
    assert_eq!(generated.usage.completion_tokens, 18);
    for said in &generated.choices {
        assert_eq!(
            (said.finish, said.tokens_in_text),
            (Some(FinishReason::Length), Some(9))
        );
    }
    let finished = events
        .iter()
        .filter(|it| matches!(it, GenerationEvent::Finish { .. }));
    assert_eq!(finished.count(), 2);
    let mut table = Table::saying(2, &tokens("ab"));
    table.hidden = 3;
    let refused = generate(&mut table, request("12345"), &|| true, &mut |_| {
        ControlFlow::Continue(())
    });
    let refused = refused.expect_err("the prompt is too long");
    assert!(
        matches!(
            refused,
            GenerationError::Decode(DecodeError::BeyondContext { .. })
        ),
        "{refused}"
    );
}
