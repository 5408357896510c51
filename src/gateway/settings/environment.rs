//! Settings from environment variables: `PKGTOOL_` and the setting's path in capitals, joined by `_`.
//!
//! Invariant: every setting of the file has its variable, but for those that only a file sets.

use toml::{Table, Value};

use super::{Settings, SettingsError};

/// What the variables begin with.
const PREFIX: &str = "PKGTOOL_";

/// Settings that protect the machine from its users: who sets a variable is not who owns the file.
const FILE_ONLY: [&str; 3] = [
    "PKGTOOL_LIMITS_WAITING",
    "PKGTOOL_LIMITS_RUNNING",
    "PKGTOOL_LIMITS_ATTEMPTS",
];

/// The settings with those of the environment over them.
pub(super) fn apply(
    settings: Settings,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Settings, SettingsError> {
    let mut relevant: Vec<(String, String)> = variables
        .filter(|(name, _)| name.starts_with(PREFIX))
        .collect();
    if relevant.is_empty() {
        return Ok(settings);
    }
    relevant.sort();
    let whole = |reason: String| SettingsError::Variable {
        name: format!("{PREFIX}…"),
        reason,
    };
    let mut table = Table::try_from(&settings).map_err(|error| whole(error.to_string()))?;
    for (name, text) in relevant {
        if FILE_ONLY.contains(&name.as_str()) {
            return Err(SettingsError::Variable {
                reason: "only `gateway.toml` sets this limit (--config FILE)".to_owned(),
                name,
            });
        }
        let Some(value) = find(&mut table, PREFIX, &name) else {
            // Variables of other commands begin in the same way.
            continue;
        };
        match parse(value, &text) {
            Ok(parsed) => *value = parsed,
            Err(reason) => return Err(SettingsError::Variable { name, reason }),
        }
        // Each by itself, so that the error names its variable.
        if let Err(error) = table.clone().try_into::<Settings>() {
            return Err(SettingsError::Variable {
                name,
                reason: error.message().to_owned(),
            });
        }
    }
    table
        .try_into()
        .map_err(|error: toml::de::Error| whole(error.to_string()))
}

/// The value of the setting that a variable names.
fn find<'a>(table: &'a mut Table, prefix: &str, name: &str) -> Option<&'a mut Value> {
    for (key, value) in table {
        let own = format!("{prefix}{}", key.to_uppercase());
        if own == name {
            return Some(value);
        }
        if let Value::Table(inner) = value
            && let Some(found) = find(inner, &format!("{own}_"), name)
        {
            return Some(found);
        }
    }
    None
}

/// A text as a value of the kind that stands there now.
fn parse(now: &Value, text: &str) -> Result<Value, String> {
    let expected = |what: &str| format!("expected {what}, found `{text}`");
    match now {
        Value::String(_) => Ok(Value::String(text.to_owned())),
        Value::Integer(_) => text
            .parse()
            .map(Value::Integer)
            .map_err(|_| expected("a whole number")),
        Value::Float(_) => text
            .parse()
            .map(Value::Float)
            .map_err(|_| expected("a number")),
        Value::Boolean(_) => text
            .parse()
            .map(Value::Boolean)
            .map_err(|_| expected("`true` or `false`")),
        // Lists of texts by commas; lists of tables, and tables, as TOML.
        Value::Array(_) if !text.trim_start().starts_with('[') => Ok(Value::Array(
            text.split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .map(|item| Value::String(item.to_owned()))
                .collect(),
        )),
        Value::Array(_) | Value::Table(_) | Value::Datetime(_) => {
            let document: Table = format!("value = {text}")
                .parse()
                .map_err(|error: toml::de::Error| error.message().to_owned())?;
            document
                .get("value")
                .cloned()
                .ok_or_else(|| expected("a TOML value"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let variables = variables.iter();
        Settings::read(
            None,
            variables.map(|(name, text)| ((*name).to_owned(), (*text).to_owned())),
        )
    }

    #[test]
    fn variables_set_what_they_name() {
        let settings = with(&[
            ("PKGTOOL_LISTEN", "0.0.0.0:9000"),
            ("PKGTOOL_LIMITS_BODY_BYTES", "1024"),
            ("PKGTOOL_LIMITS_STORED_TASKS", "1000"),
            ("PKGTOOL_LIMITS_STORED_BYTES", "1000000"),
            ("PKGTOOL_TASKS_RECORD_TTL_DAYS", "0"),
            ("PKGTOOL_TASKS_INLINE_BYTES", "4096"),
            (
                "PKGTOOL_CORS_ORIGINS",
                "https://a.example, https://b.example",
            ),
            ("PKGTOOL_DEFAULTS_WARM_UP", "true"),
            ("PKGTOOL_SERVICES", "{ sum = { instances = 2 } }"),
            ("PKGTOOL_API_KEY", "not a setting"),
        ])
        .expect("they are right");
        assert_eq!(settings.listen.port(), 9000);
        assert_eq!(settings.limits.body_bytes, 1024);
        assert_eq!(settings.cors.origins.len(), 2);
        let quota = settings.caps().quota;
        assert_eq!((quota.tasks, quota.bytes), (1000, 1_000_000));
        assert_eq!(settings.tasks.record_ttl(), None);
        assert_eq!(settings.tasks.inline_bytes, 4096);
        let sum = settings.service("sum").expect("it is right");
        assert_eq!((sum.instances, sum.warm_up), (2, true));
    }

    #[test]
    fn wrong_variables_are_named() {
        for (name, text, hint) in [
            ("PKGTOOL_LISTEN", "here", "PKGTOOL_LISTEN"),
            ("PKGTOOL_LIMITS_BODY_BYTES", "much", "a whole number"),
            ("PKGTOOL_LIMITS_WAITING", "1000", "only `gateway.toml`"),
            ("PKGTOOL_TIMEOUTS_BODY_S", "0", "timeouts.body_s"),
            (
                "PKGTOOL_TASKS_RECORD_TTL_DAYS",
                "-1",
                "tasks.record_ttl_days",
            ),
            (
                "PKGTOOL_TASKS_INLINE_BYTES",
                "1048577",
                "tasks.inline_bytes",
            ),
            ("PKGTOOL_LIMITS_STORED_TASKS", "-1", "stored_tasks"),
            ("PKGTOOL_SERVICES", "{ sum = { instance = 2 } }", "instance"),
        ] {
            let error = with(&[(name, text)]).expect_err(name).to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let settings = Settings::default();
        assert_eq!(toml::from_str::<Settings>(&settings.print()), Ok(settings));
    }
}
