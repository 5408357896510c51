//! Several texts in the lanes (batch rows) of one session: each gets the same logits as alone,
//! whatever runs they share.

use std::collections::BTreeMap;

use pkgtool_engine::runtime::worker::Worker;
use pkgtool_engine::tensor::Tensor;
use pkgtool_engine::{Lanes, Session as _};
use pkgtool_text::decoder::{
    Decoder, DecoderModel, LaneRow, SessionStepRunner, StepError, StepTokens, TokenDecoder,
};

use super::decoder::{PROMPT, assert_near, best, decoder, fed, has_ort};

/// A session and the tokens that each of its lanes holds.
struct Held {
    model: DecoderModel,
    worker: Worker,
    lanes: BTreeMap<u32, Vec<u32>>,
    gone: Vec<u32>,
}

impl Held {
    fn new(kind: &str, engine: &str) -> Self {
        let decoder = decoder(kind, engine);
        Self {
            model: decoder.model().clone(),
            worker: decoder.into_steps().0,
            lanes: BTreeMap::new(),
            gone: Vec::new(),
        }
    }

    /// Feeds tokens to several lanes in one run and returns the logits of each.
    fn feed(&mut self, rows: &[(u32, &[u32])]) -> Result<Vec<Vec<f32>>, StepError> {
        let held = |lane: &u32| self.lanes.get(lane).map_or(0, Vec::len);
        let fed: Vec<LaneRow<'_>> = rows
            .iter()
            .map(|(lane, tokens)| LaneRow {
                lane: *lane,
                fed: StepTokens::new(held(lane), tokens),
            })
            .collect();
        let lanes = Lanes {
            gone: std::mem::take(&mut self.gone),
            ..Lanes::default()
        };
        let outputs = self
            .model
            .run_rows(&fed, lanes, &mut run(&mut self.worker))?;
        for (lane, tokens) in rows {
            self.lanes.entry(*lane).or_default().extend(*tokens);
        }
        let logits = outputs.iter().map(|outputs| {
            let logits = outputs[0].to_f64();
            #[expect(clippy::cast_possible_truncation, reason = "the numbers were float32")]
            logits.map(|logit| logit as f32).collect()
        });
        Ok(logits.collect())
    }

    fn end(&mut self, lane: u32) {
        self.lanes.remove(&lane);
        self.gone.push(lane);
    }
}

fn run(
    worker: &mut Worker,
) -> impl FnMut(pkgtool_engine::RunStart, Vec<Tensor>) -> Result<Vec<Tensor>, StepError> {
    |begins, inputs| {
        let answer = worker.begin(begins).and_then(|()| worker.run(&inputs));
        Ok(answer.map_err(StepError::failed)?.outputs)
    }
}

/// Models whose rows can share runs, with the engines that run them here, and the tolerance.
fn laned() -> Vec<(&'static str, &'static str, f32)> {
    let mut all = vec![("masked.onnx", "tract", 1e-5)];
    if has_ort() {
        all.push(("masked.onnx", "ort", 1e-5));
        all.push(("fused.onnx", "ort", 1e-5));
    }
    all
}

/// Returns the logits after a text, from a session that holds nothing else.
fn alone(alone: &mut TokenDecoder<SessionStepRunner<Worker>>, text: &[u32]) -> Vec<f32> {
    alone.cut(0).expect("the decoder is reset");
    fed(alone, text)
}

#[test]
fn a_trial_says_whose_rows_share_runs() {
    for (kind, engine, _) in laned() {
        let mut held = Held::new(kind, engine);
        assert!(held.model.has_lanes(), "{kind}");
        for _ in 0..3 {
            let tried = held.model.try_rows([7, 8], &mut run(&mut held.worker));
            assert!(tried.expect("the trial runs"), "{kind} on {engine}");
        }
    }
    // This decoder uses only the length of its mask and ignores the values.
    let mut held = Held::new("cached.onnx", "tract");
    assert!(held.model.has_lanes());
    let tried = held.model.try_rows([7, 8], &mut run(&mut held.worker));
    assert!(!tried.expect("the trial runs"));
    for kind in ["merged.onnx", "full.onnx"] {
        assert!(!decoder(kind, "tract").model().has_lanes(), "{kind}");
    }
}

#[test]
fn whatever_runs_are_shared_each_text_goes_on_as_it_would_alone() {
    for (kind, engine, near) in laned() {
        let mut held = Held::new(kind, engine);
        let mut single = decoder(kind, engine);
        // The lanes fed in each run: some start late, some end early, some skip a run.
        let runs: &[&[u32]] = &[
            &[1, 2],
            &[1, 2],
            &[3],
            &[1, 2, 3],
            &[3, 1, 2],
            &[1, 3],
            &[2],
            &[1, 2, 3],
            &[3],
            &[2, 3],
        ];
        let mut next: BTreeMap<u32, u32> = BTreeMap::new();
        for (round, lanes) in runs.iter().enumerate() {
            let what = format!("{kind} on {engine}, run {round}");
            for lane in *lanes {
                if !held.lanes.contains_key(lane) {
                    let prompt = &PROMPT[..9 - 2 * *lane as usize];
                    let logits = held.feed(&[(*lane, prompt)]).expect("the run succeeds");
                    assert_near(&logits[0], &alone(&mut single, prompt), near, &what);
                    next.insert(*lane, best(&logits[0]));
                }
            }
            let rows: Vec<(u32, [u32; 1])> =
                lanes.iter().map(|lane| (*lane, [next[lane]])).collect();
            let rows: Vec<(u32, &[u32])> = rows.iter().map(|(lane, it)| (*lane, &it[..])).collect();
            let logits = held.feed(&rows).expect("the run succeeds");
            for (lane, logits) in lanes.iter().zip(&logits) {
                let expected = alone(&mut single, &held.lanes[lane]);
                assert_near(logits, &expected, near, &format!("{what}, lane {lane}"));
                next.insert(*lane, best(&expected));
            }
            if round == 4 {
                // The number of the lane may be reused; its old contents must be gone.
                held.end(1);
            }
            if round == 6 {
                // Removes the last two tokens of the lane.
                let text = held.lanes.get_mut(&2).expect("the lane exists");
                text.truncate(text.len() - 2);
            }
        }
    }
}

#[test]
fn what_a_lane_does_not_hold_is_an_error_and_others_stay() {
    for (kind, engine, near) in laned() {
        let mut held = Held::new(kind, engine);
        let mut single = decoder(kind, engine);
        held.feed(&[(1, &PROMPT[..4])]).expect("the run succeeds");
        held.feed(&[(2, &PROMPT[..2])]).expect("the run succeeds");
        for _ in 0..2 {
            held.lanes.insert(3, vec![1, 2, 3]);
            let beyond = held.feed(&[(1, &[4]), (3, &[5])]);
            assert!(beyond.is_err(), "{kind} on {engine}");
            held.lanes.remove(&3);
        }
        let logits = held.feed(&[(1, &[4]), (2, &[5])]).expect("the lanes exist");
        for (lane, logits) in [1, 2].iter().zip(&logits) {
            let expected = alone(&mut single, &held.lanes[lane]);
            assert_near(
                logits,
                &expected,
                near,
                &format!("{kind} on {engine}, {lane}"),
            );
        }
    }
}

#[test]
fn buffers_that_grow_keep_every_row() {
    if !has_ort() {
        return;
    }
    // More tokens than the initial buffers hold.
    let long: Vec<u32> = (0..300).map(|place| place * 5 % 48).collect();
    let mut held = Held::new("fused.onnx", "ort");
    let mut single = decoder("fused.onnx", "ort");
    held.feed(&[(1, &long[..254])]).expect("the run succeeds");
    held.feed(&[(2, &PROMPT)]).expect("the run succeeds");
    for place in 0..6 {
        let rows: [(u32, &[u32]); 2] = [(1, &[long[254 + place]]), (2, &[PROMPT[place]])];
        let logits = held.feed(&rows).expect("the run succeeds");
        for (lane, logits) in [1, 2].iter().zip(&logits) {
            let expected = alone(&mut single, &held.lanes[lane]);
            assert_near(logits, &expected, 1e-5, &format!("{place}, lane {lane}"));
        }
    }
}
