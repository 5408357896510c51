//! Values that `pkgtool init` cannot infer: asked on a terminal, otherwise reported with the option
//! that sets them.

use super::args;
use crate::cli::exit::Failure;
use crate::cli::output;
use pkgtool_check::author::init::{Given, Missing, Need};

/// Maximum number of attempts at answering a question.
const MAX_TRIES: usize = 3;

/// A need, and the drafts that have it with their reasons.
type NeedWithPlaces = (Need, Vec<(String, Missing)>);

/// Asks for each need, once for all configs.
pub(super) fn ask(needs: &[NeedWithPlaces], given: &mut Given) -> Result<(), Failure> {
    for (need, places) in needs {
        let Some((_, missing)) = places.first() else {
            continue;
        };
        let mut tries = 0;
        while let Err(problem) = ask_once(need, missing, given)? {
            tries += 1;
            if tries == MAX_TRIES {
                return Err(Failure::Other(format!("{}: {problem}", need.field())));
            }
            output::note(&problem);
        }
    }
    Ok(())
}

fn ask_once(
    need: &Need,
    missing: &Missing,
    given: &mut Given,
) -> Result<Result<(), String>, Failure> {
    let what = match need {
        Need::Precision(file) => format!("precision of {file}"),
        need => need.field().to_owned(),
    };
    let proposal = missing.proposal.as_deref();
    let default = proposal.map_or(String::new(), |text| format!(" [{text}]"));
    let question = format!("{what} ({}){default}: ", missing.why);
    let Some(answer) = output::ask(&question)? else {
        let needs = [(need.clone(), vec![(String::new(), missing.clone())])];
        return Err(Failure::Other(self::missing(&needs)));
    };
    let answer = match (answer.trim(), proposal) {
        ("", Some(proposal)) => proposal.to_owned(),
        (answer, _) => answer.to_owned(),
    };
    Ok(store_answer(need, &answer, given))
}

/// Stores an answer in `given`, or returns what is wrong with it.
fn store_answer(need: &Need, answer: &str, given: &mut Given) -> Result<(), String> {
    match need {
        Need::Model => given.model = Some(args::token(answer)?),
        Need::Family => given.family = Some(args::token(answer)?),
        Need::License if answer.is_empty() => return Err("a licence is required".to_owned()),
        Need::License => given.license = Some(answer.to_owned()),
        Need::Backend => given.backend = Some(args::backend(answer)?),
        Need::Precision(file) => {
            given.precisions.insert(file.clone(), args::token(answer)?);
        }
        Need::Capabilities => {
            let words = answer.split(',').map(|word| args::capability(word.trim()));
            given.capabilities = words.collect::<Result<_, _>>()?;
        }
    }
    Ok(())
}

/// Lists the missing options and the reasons in one line.
pub(super) fn missing(needs: &[NeedWithPlaces]) -> String {
    let needs = needs.iter().filter_map(|(need, places)| {
        let (_, missing) = places.first()?;
        let proposal = match &missing.proposal {
            Some(text) => format!("; accept the proposal `{text}` with --yes"),
            None => String::new(),
        };
        Some(format!("`{}` ({}{proposal})", need.flag(), missing.why))
    });
    let needs: Vec<String> = needs.collect();
    format!("nothing was written: missing {}", needs.join(", "))
}

#[cfg(test)]
mod tests {
    use super::store_answer;
    use pkgtool_check::author::init::{Given, Need};

    #[test]
    fn answers_are_checked_as_options_are() {
        let mut given = Given::default();
        assert!(store_answer(&Need::Family, "Tiny", &mut given).is_err());
        assert!(store_answer(&Need::License, "", &mut given).is_err());
        assert!(store_answer(&Need::Capabilities, "clasification", &mut given).is_err());
        assert!(store_answer(&Need::Backend, "cuda", &mut given).is_err());
        store_answer(&Need::Capabilities, "classification, vision", &mut given)
            .expect("both are known");
        assert_eq!(given.capabilities, ["classification", "vision"]);
        store_answer(&Need::Precision("m.pte".to_owned()), "fp32", &mut given).expect("a token");
        assert_eq!(given.precisions["m.pte"], "fp32");
    }
}
