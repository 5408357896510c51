//! Explains failed runs on pictures of sizes that the model does not accept.

use std::time::Duration;

use super::super::engine::{Endpoint, SideRule};
use super::super::{CallError, Refusal};
use super::time::TimeLeft;
use crate::account::AccountId;
use pkgtool_engine::tensor::Tensor;

/// Runs the model. If it fails and its inputs violate the model's rule for picture sizes, the error
/// says so. `picture` is the place of the picture that the inputs came from.
pub(super) async fn run(
    endpoint: &Endpoint,
    caller: AccountId,
    (inputs, picture): (Vec<Tensor>, Option<&str>),
    timeout: Option<Duration>,
) -> Result<Vec<Tensor>, CallError> {
    let time = TimeLeft::of(timeout);
    let shapes: Vec<Vec<u64>> = inputs.iter().map(|it| it.shape().to_vec()).collect();
    let error = match endpoint.run(caller, inputs, timeout).await {
        Err(error @ CallError::Failed(_)) => error,
        other => return other,
    };
    let rule = time.within(async { Ok(endpoint.side_rule().await) }).await;
    let rule = rule.ok().flatten();
    let broken = rule.and_then(|rule| refusal(rule, &shapes, picture));
    Err(broken.map_or(error, CallError::Refused))
}

/// Returns the refusal of sizes that violate the rule.
fn refusal(rule: &SideRule, shapes: &[Vec<u64>], picture: Option<&str>) -> Option<Refusal> {
    let SideRule { sides, step } = rule;
    let shape = shapes.get(sides.input)?;
    let [height, width] = sides.axes.map(|axis| shape.get(axis).copied().unwrap_or(0));
    if height % step == 0 && width % step == 0 {
        return None;
    }
    // The nearest valid size.
    let [tall, wide] = [height, width].map(|side| ((side + step / 2) / step).max(1) * step);
    let message = format!(
        "sides must be multiples of {step}: expected for example {wide}×{tall}, got {width}×{height}"
    );
    let place = match (picture, shapes.len()) {
        (Some(place), _) => place,
        (None, 1) => "$.inputs[0].shape",
        (None, _) => "$.inputs",
    };
    Some(Refusal::at(place, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pkgtool_engine::tensor::input::OpenSides;

    #[test]
    fn sides_that_break_the_rule_are_named() {
        let rule = SideRule {
            sides: OpenSides {
                input: 0,
                axes: [2, 3],
                labels: ["h".to_owned(), "w".to_owned()],
            },
            step: 32,
        };
        let of = |shape: [u64; 4]| refusal(&rule, &[shape.to_vec()], Some("$.image_base64"));
        let refusal = of([1, 3, 75, 100]).expect("they are no multiples");
        assert_eq!(
            refusal.message,
            "sides must be multiples of 32: expected for example 96×64, got 100×75"
        );
        assert_eq!(refusal.place.as_deref(), Some("$.image_base64"));
        assert_eq!(of([1, 3, 64, 96]), None, "something else has failed");
        assert!(
            of([1, 3, 5, 96])
                .expect("5 is none")
                .message
                .contains("96×32")
        );
    }
}
