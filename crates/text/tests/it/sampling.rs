//! Token sampling: each step compared with its definition, the order of the steps, invalid settings
//! and logits.

use pkgtool_text::sampling::{Sampler, Sampling, SamplingError, SamplingOverrides};
use proptest::prelude::*;
use serde_json::{Value, json};

fn wish(fields: &Value) -> Result<SamplingOverrides, SamplingError> {
    SamplingOverrides::of_request(fields.as_object().expect("the value is an object"))
}

fn settings(fields: &Value) -> Sampling {
    Sampling::merged(
        wish(fields).expect("the settings are valid"),
        SamplingOverrides::default(),
    )
}

fn sampler(settings: &Sampling, choice: usize, prompt: &[u32], vocabulary: usize) -> Sampler {
    let seed = settings.seed.unwrap_or(0);
    Sampler::new(settings.clone(), seed, choice, prompt, vocabulary)
        .expect("the settings are valid")
}

/// Samples repeatedly from the same logits and returns the share of each token.
fn shares(settings: &Sampling, logits: &[f32]) -> Vec<f64> {
    const DRAWS: u32 = 20_000;
    let mut sampler = sampler(settings, 0, &[], logits.len());
    let mut counts = vec![0_u32; logits.len()];
    for _ in 0..DRAWS {
        let mut logits = logits.to_vec();
        counts[sampler
            .choose(&mut logits, None)
            .expect("the settings are valid")
            .token as usize] += 1;
    }
    let share = |count| f64::from(count) / f64::from(DRAWS);
    counts.into_iter().map(share).collect()
}

/// Returns the expected shares according to the definitions, with a full sort and in 64 bits.
fn expected(settings: &Sampling, logits: &[f32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    let most = f64::from(logits[order[0]]);
    let weight =
        |i: &usize| ((f64::from(logits[*i]) - most) / f64::from(settings.temperature)).exp();
    if settings.top_k > 0 {
        order.truncate(settings.top_k);
    }
    let total: f64 = order.iter().map(weight).sum();
    let mut sum = 0.0;
    let reached = order.iter().position(|i| {
        sum += weight(i);
        sum >= total * f64::from(settings.top_p)
    });
    order.truncate(reached.map_or(order.len(), |place| place + 1));
    order.retain(|i| weight(i) >= f64::from(settings.min_p));
    let total: f64 = order.iter().map(weight).sum();
    let mut shares = vec![0.0; logits.len()];
    for i in &order {
        shares[*i] = weight(i) / total;
    }
    shares
}

#[test]
fn draws_are_as_often_as_their_probability_says() {
    let logits: Vec<f32> = vec![1.0, 2.5, -3.0, 2.0, f32::NEG_INFINITY, 0.3, 2.2, -0.4];
    for fields in [
        json!({}),
        json!({"temperature": 0.5}),
        json!({"temperature": 1.7, "top_k": 3}),
        json!({"top_p": 0.6}),
        json!({"min_p": 0.3}),
        json!({"temperature": 1.3, "top_k": 6, "top_p": 0.8, "min_p": 0.2}),
    ] {
        let settings = settings(&fields);
        let (drawn, expected) = (shares(&settings, &logits), expected(&settings, &logits));
        for (token, (drawn, expected)) in drawn.iter().zip(&expected).enumerate() {
            assert!(
                (drawn - expected).abs() < 0.015,
                "{fields}: {token}: {drawn}, not {expected}"
            );
            assert_eq!(
                *drawn == 0.0,
                *expected < 1e-4,
                "{fields}: {token}: {drawn}, {expected}"
            );
        }
    }
}

#[test]
fn the_token_that_reaches_top_p_is_kept() {
    let logits = [0.5_f32, 0.3, 0.2].map(f32::ln);
    for (top_p, kept) in [(0.4, 1), (0.6, 2), (0.85, 3)] {
        let shares = shares(&settings(&json!({"top_p": top_p})), &logits);
        assert_eq!(
            shares.iter().filter(|share| **share > 0.0).count(),
            kept,
            "{top_p}"
        );
    }
}

#[test]
fn equals_are_kept_by_id_however_many_there_are() {
    for size in [5, 3000] {
        let logits = vec![1.0; size];
        let shares = shares(&settings(&json!({"top_k": 2})), &logits);
        assert!(shares[0] > 0.4 && shares[1] > 0.4, "{size}");
    }
}

proptest! {
    /// No token that the definitions exclude is sampled, even in large vocabularies, where
    /// selection works in parts.
    #[test]
    fn only_what_is_kept_is_drawn(
        seed in any::<u64>(),
        size in 1_usize..6000,
        spread in 0.0_f32..12.0,
        top_k in 0_usize..3000,
        top_p in 0.01_f32..=1.0,
        min_p in 0.0_f32..0.5,
        temperature in 0.2_f32..2.0,
    ) {
        let mut state = seed | 1;
        let logits: Vec<f32> = (0..size).map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from(u16::try_from(state >> 48).expect("the number fits")) / 65536.0 * spread
        }).collect();
        let settings = Sampling { temperature, top_k, top_p, min_p, ..Sampling::default() };
        // Rounding decides at the exact limit, so slightly wider limits are accepted as well.
        let wider = Sampling { top_p: (top_p + 1e-3).min(1.0), min_p: min_p * 0.999, ..settings.clone() };
        let allowed = expected(&wider, &logits);
        let mut sampler = sampler(&settings, 0, &[], size);
        for _ in 0..20 {
            let token = sampler.choose(&mut logits.clone(), None).expect("the settings are valid").token as usize;
            prop_assert!(allowed[token] > 0.0, "{}", token);
        }
    }

    #[test]
    fn any_logits_give_a_token_or_an_error(
        bits in proptest::collection::vec(any::<u32>(), 0..40),
        temperature in prop_oneof![Just(0.0), 0.0_f32..2.0, Just(1e-30)],
        top_k in 0_usize..50,
        top_p in prop_oneof![Just(1.0), Just(f32::MIN_POSITIVE), 0.01_f32..1.0],
        repetition_penalty in prop_oneof![Just(1.0), Just(f32::MIN_POSITIVE), 0.1_f32..10.0],
        mask in any::<Option<[u32; 2]>>(),
    ) {
        let settings = Sampling {
            temperature, top_k, top_p, repetition_penalty,
            frequency_penalty: 2.0, logprobs: Some(3), ..Sampling::default()
        };
        let mut sampler = sampler(&settings, 0, &[0, 1, 2, 77], bits.len());
        let logits: Vec<f32> = bits.iter().map(|bits| f32::from_bits(*bits)).collect();
        for _ in 0..3 {
            let mut changed = logits.clone();
            if let Ok(chosen) = sampler.choose(&mut changed, mask.as_ref().map(|mask| &mask[..])) {
                let token = chosen.token as usize;
                prop_assert!(logits[token] > f32::NEG_INFINITY);
                if let Some(mask) = mask {
                    prop_assert!(mask[token / 32] >> (token % 32) & 1 == 1);
                }
            }
        }
    }
}

#[test]
fn the_same_seed_draws_the_same_and_choices_differ() {
    let logits: Vec<f32> = (0..100_u8).map(|i| f32::from(i % 7)).collect();
    let draw = |fields: Value, choice| {
        let mut sampler = sampler(&settings(&fields), choice, &[], logits.len());
        let draw = |_| {
            sampler
                .choose(&mut logits.clone(), None)
                .expect("the settings are valid")
                .token
        };
        (0..20).map(draw).collect::<Vec<u32>>()
    };
    assert_eq!(draw(json!({"seed": 7}), 0), draw(json!({"seed": 7}), 0));
    assert_ne!(draw(json!({"seed": 7}), 0), draw(json!({"seed": 7}), 1));
    assert_ne!(draw(json!({"seed": 7}), 0), draw(json!({"seed": 8}), 0));
    assert_ne!(draw(json!({"seed": -7}), 0), draw(json!({"seed": 7}), 0));
    // These exact tokens must stay the same in later releases.
    assert_eq!(
        draw(
            json!({"seed": 7, "top_k": 40, "top_p": 0.9, "temperature": 0.8}),
            0
        )[..8],
        PINNED
    );
    assert_eq!(draw(json!({"seed": 7}), 0)[..8], PINNED_AMONG_ALL);
}

const PINNED: [u32; 8] = [75, 47, 5, 33, 40, 34, 34, 20];
const PINNED_AMONG_ALL: [u32; 8] = [76, 48, 4, 33, 41, 34, 34, 20];

#[test]
fn without_a_seed_every_request_draws_otherwise() {
    assert_ne!(Sampling::default().seed(), Sampling::default().seed());
    assert_eq!(settings(&json!({"seed": 5})).seed(), 5);
}

#[test]
fn repetition_counts_prompt_and_output_the_others_output_only() {
    let choose = |fields: Value, prompt: &[u32], logits: [f32; 3], times: usize| {
        let mut fields = fields;
        fields["temperature"] = json!(0);
        let mut sampler = sampler(&settings(&fields), 0, prompt, 3);
        let draw = |_| {
            sampler
                .choose(&mut logits.clone(), None)
                .expect("the settings are valid")
                .token
        };
        (0..times).map(draw).collect::<Vec<u32>>()
    };
    // 2.0 / 1.5 is below 1.5, and -1.0 * 1.5 is below -1.2.
    assert_eq!(
        choose(json!({"repetition_penalty": 1.5}), &[0], [2.0, 1.5, 0.0], 1),
        [1]
    );
    assert_eq!(
        choose(
            json!({"repetition_penalty": 1.5}),
            &[0],
            [-1.0, -1.2, -9.0],
            1
        ),
        [1]
    );
    assert_eq!(
        choose(json!({"repetition_penalty": 1.5}), &[], [2.0, 1.5, 0.0], 2),
        [0, 1]
    );
    assert_eq!(
        choose(json!({"presence_penalty": 1.0}), &[0], [2.0, 1.5, 0.0], 3),
        [0, 1, 0]
    );
    // Two times 0.4 exceeds the difference of 0.5.
    assert_eq!(
        choose(json!({"frequency_penalty": 0.4}), &[0], [2.0, 1.5, -9.0], 4),
        [0, 0, 1, 0]
    );
    assert_eq!(
        choose(json!({"logit_bias": {"2": 100}}), &[], [2.0, 1.5, 0.0], 1),
        [2]
    );
    assert_eq!(
        choose(json!({"logit_bias": {"0": -100}}), &[], [2.0, 1.5, 0.0], 1),
        [1]
    );
}

#[test]
fn probabilities_are_those_of_the_model_itself() {
    let fields = json!({"temperature": 0.3, "top_k": 1, "logprobs": true, "top_logprobs": 2,
        "logit_bias": {"2": 100}, "presence_penalty": 2});
    let logits = [0.5_f32, 0.3, 0.2].map(f32::ln);
    let settings = settings(&fields);
    let mut sampler = sampler(&settings, 0, &[], 3);
    let chosen = sampler
        .choose(&mut logits.clone(), Some(&[0b110]))
        .expect("the settings are valid");
    assert_eq!(chosen.token, 2);
    assert!((chosen.logprob.expect("the log probability is reported") - 0.2_f32.ln()).abs() < 1e-5);
    let top: Vec<(u32, f32)> = chosen
        .top
        .iter()
        .map(|one| (one.token, one.logprob.exp()))
        .collect();
    assert_eq!(top.iter().map(|one| one.0).collect::<Vec<_>>(), [0, 1]);
    assert!((top[0].1 - 0.5).abs() < 1e-5 && (top[1].1 - 0.3).abs() < 1e-5);
}

#[test]
fn logits_that_are_no_numbers_are_errors() {
    let greedy = settings(&json!({"temperature": 0}));
    for (logits, token) in [(vec![0.0, f32::NAN], 1), (vec![f32::INFINITY, 0.0], 0)] {
        let error = sampler(&greedy, 0, &[], 2)
            .choose(&mut logits.clone(), None)
            .expect_err("the input is rejected");
        assert!(
            matches!(error, SamplingError::NotFinite { token: found, .. } if found == token),
            "{error}"
        );
    }
    for (logits, mask) in [
        (vec![f32::NEG_INFINITY; 2], None),
        (vec![], None),
        (vec![1.0; 2], Some(&[0_u32][..])),
        (vec![1.0; 2], Some(&[][..])),
    ] {
        let error = sampler(&greedy, 0, &[], 2)
            .choose(&mut logits.clone(), mask)
            .expect_err("the input is rejected");
        assert_eq!(
            error,
            SamplingError::Nothing {
                tokens: logits.len()
            }
        );
    }
}

#[test]
fn settings_are_of_the_request_then_of_the_model() {
    let of_model = |config: Value| {
        SamplingOverrides::of_generation_config(config.as_object().expect("the value is an object"))
            .expect("the settings are valid")
    };
    let config = json!({"do_sample": true, "temperature": 0.6, "top_k": 20, "top_p": 0.95,
        "eos_token_id": [1, 2], "repetition_penalty": 1.1});
    let merged = Sampling::merged(
        wish(&json!({"temperature": 1.5})).expect("the settings are valid"),
        of_model(config),
    );
    assert_eq!(
        merged,
        Sampling {
            temperature: 1.5,
            top_k: 20,
            top_p: 0.95,
            repetition_penalty: 1.1,
            ..Sampling::default()
        }
    );
    // A config without `do_sample` does not enable sampling.
    let config = json!({"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.1});
    let merged = Sampling::merged(SamplingOverrides::default(), of_model(config));
    let repetition_penalty = 1.1;
    assert_eq!(
        merged,
        Sampling {
            repetition_penalty,
            ..Sampling::default()
        }
    );
    let merged = Sampling::merged(
        SamplingOverrides::default(),
        of_model(json!({"do_sample": false})),
    );
    assert_eq!(
        merged,
        Sampling {
            temperature: 0.0,
            ..Sampling::default()
        }
    );
}

#[test]
fn settings_out_of_bounds_are_refused_with_their_name() {
    for (fields, words) in [
        (
            json!({"temperature": 2.1}),
            "`temperature` must be a number from 0 to 2, not 2.1",
        ),
        (
            json!({"temperature": "hot"}),
            "`temperature` must be a number from 0 to 2, not \"hot\"",
        ),
        (
            json!({"top_p": 0}),
            "`top_p` must be a number above 0 and up to 1, not 0",
        ),
        (
            json!({"top_k": 1.5}),
            "`top_k` must be a whole number of at least -1, not 1.5",
        ),
        (
            json!({"min_p": -0.1}),
            "`min_p` must be a number from 0 to 1, not -0.1",
        ),
        (
            json!({"repetition_penalty": 0}),
            "`repetition_penalty` must be a number above 0 and up to 10, not 0",
        ),
        (
            json!({"presence_penalty": -3}),
            "`presence_penalty` must be a number from -2 to 2, not -3",
        ),
        (
            json!({"seed": 1.5}),
            "`seed` must be a whole number of 64 bits, not 1.5",
        ),
        (
            json!({"logit_bias": {"5": 101}}),
            "`logit_bias.5` must be a number from -100 to 100, not 101",
        ),
        (
            json!({"logit_bias": {"x": 1}}),
            "`logit_bias` must be an object of token ids, each with a bias, not an object with the key \"x\"",
        ),
        (
            json!({"logprobs": true, "top_logprobs": 21}),
            "`top_logprobs` must be a whole number from 0 to 20, not 21",
        ),
        (
            json!({"top_logprobs": 2}),
            "`logprobs` must be true where `top_logprobs` is given, not absent or false beside \
             `top_logprobs` 2",
        ),
    ] {
        assert_eq!(
            wish(&fields)
                .expect_err("the input is rejected")
                .to_string(),
            words
        );
    }
    let nothing = json!({"temperature": null, "top_k": -1, "logprobs": false, "messages": []});
    assert_eq!(settings(&nothing), Sampling::default());
    let bias = settings(&json!({"logit_bias": {"3": 1}}));
    let error = Sampler::new(bias, 0, 0, &[], 3).expect_err("the input is rejected");
    assert_eq!(error, SamplingError::Token { token: 3, last: 2 });
}
