//! Text from scores of letters.

use super::{Data, DataKind, Operator, StepContext, values};
use crate::answer::{TextAnswer, TypedAnswer, TypedAnswerKind};
use crate::labels::{self, Labels};
use crate::operators::{Arguments, Parameter, ParameterKind};

pub(super) const TABLE: &[Operator] = &[Operator {
    name: "ctc",
    from: &[DataKind::Values],
    to: DataKind::Answer(TypedAnswerKind::Text),
    parameters: &[
        Parameter {
            name: "alphabet",
            kind: ParameterKind::Labels,
            default: Some("\"auto\""),
        },
        // A text with a lower score is empty.
        Parameter {
            name: "threshold",
            kind: ParameterKind::Number(0.0, 1.0),
            default: Some("0"),
        },
    ],
    run: ctc,
}];

/// Takes the best letter of each step, without repetitions and blanks (class 0). The score is the mean of the
/// letters' scores.
fn ctc(
    from: &[&Data],
    arguments: &Arguments,
    context: &mut StepContext<'_>,
) -> Result<Data, String> {
    let array = values(from, 0)?;
    let [_, classes] = array.last::<2>()?;
    let alphabet = alphabet(arguments, context, classes)?;
    let mut text = String::new();
    let (mut sum, mut count) = (0.0_f64, 0_u32);
    let mut previous = 0;
    for step in array.values.chunks_exact(classes.max(1)) {
        // The first of equal scores.
        let better = |best: usize, class: usize| {
            if step[class] > step[best] {
                class
            } else {
                best
            }
        };
        let class = (0..classes).fold(0, better);
        if class > 0 && class != previous {
            text.push_str(&alphabet.letter(class - 1));
            sum += f64::from(step[class]);
            count += 1;
        }
        previous = class;
    }
    let score = if count == 0 {
        0.0
    } else {
        sum / f64::from(count)
    };
    if score < arguments.number("threshold") {
        text.clear();
    }
    Ok(Data::Answer(TypedAnswer::Text(TextAnswer {
        text,
        score,
        label_source: alphabet.source,
    })))
}

/// Returns the letters of the classes behind the blank. A space may follow the given ones.
fn alphabet(
    arguments: &Arguments,
    context: &StepContext<'_>,
    classes: usize,
) -> Result<Labels, String> {
    let value = arguments.json("alphabet");
    let letters = classes.saturating_sub(1);
    let known = if value == labels::AUTO && context.labels.is_none() {
        Labels::alphabet_of(letters).ok_or_else(|| {
            format!(
                "no alphabet for {letters} letters: put alphabet.json, a list of letters, beside the model"
            )
        })?
    } else {
        context.labels(value, None)?
    };
    let fits = known.count() == letters || known.count() + 1 == letters;
    if !fits {
        return Err(format!(
            "an alphabet of {} letters ({}) does not fit the model: expected {letters}, or one less without the space",
            known.count(),
            known.source
        ));
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::{Array, Symbols};
    use crate::picture::Geometry;

    fn read(classes: &[usize], width: usize, letters: &[&str]) -> Result<(String, f64), String> {
        let letters = letters.iter().map(|letter| (*letter).to_owned()).collect();
        let labels = Labels::listed(letters, "a test");
        let symbols = Symbols::new();
        let mut context = StepContext {
            geometry: Geometry::same([1, 1]),
            labels: Some(&labels),
            ..StepContext::new(&symbols)
        };
        let mut values = vec![0.0; classes.len() * width];
        for (step, class) in classes.iter().enumerate() {
            values[step * width + class] = 0.5;
        }
        let shape = vec![1, classes.len(), width];
        let arguments = Arguments([("alphabet", "auto".into()), ("threshold", 0.2.into())].into());
        match ctc(
            &[&Data::Values(Array { shape, values })],
            &arguments,
            &mut context,
        )? {
            Data::Answer(TypedAnswer::Text(answer)) => Ok((answer.text, answer.score)),
            _ => Err("no text".to_owned()),
        }
    }

    #[test]
    fn repetitions_and_blanks_are_dropped() {
        let letters = ["a", "b"];
        assert_eq!(
            read(&[1, 1, 0, 1, 2, 2, 0], 3, &letters),
            Ok(("aab".to_owned(), 0.5))
        );
        assert_eq!(read(&[1, 3, 2], 4, &letters), Ok(("a b".to_owned(), 0.5)));
        assert_eq!(read(&[0, 0], 3, &letters), Ok((String::new(), 0.0)));
        let error = read(&[1], 9, &letters).expect_err("too few letters");
        assert!(
            error.contains("does not fit the model: expected 8"),
            "{error}"
        );
    }
}
