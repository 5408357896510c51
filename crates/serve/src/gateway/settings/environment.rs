//! Settings from environment variables: `PKGTOOL_` and the setting's path in capitals, joined by
//! `_`.
//!
//! Invariant: every setting of the file has a variable. An unknown variable with this prefix is
//! rejected, unless it is known to belong to something else.

use toml::{Table, Value};

use super::{GatewaySettings, SettingsError};
use pkgtool_base::source::suggest;

/// Prefix of the variables.
pub(super) const PREFIX: &str = "PKGTOOL_";

/// Variables with the prefix that are not settings: those of the tool's other commands, of its
/// Python package, of its build and of its tests.
const OTHER_VARIABLES: [&str; 13] = [
    "PKGTOOL_ACCOUNT",
    "PKGTOOL_API_KEY",
    "PKGTOOL_BENCH_PYTHON",
    "PKGTOOL_BIN",
    "PKGTOOL_COMMIT",
    "PKGTOOL_CONFIG",
    "PKGTOOL_CPU_FEATURES",
    "PKGTOOL_EXECUTORCH_DIR",
    "PKGTOOL_EXECUTORCH_VERSION",
    "PKGTOOL_ON",
    "PKGTOOL_REQUIRE",
    "PKGTOOL_RUNNER",
    "PKGTOOL_URL",
];

/// Prefixes of such variables.
const OTHER_PREFIXES: [&str; 2] = ["PKGTOOL_DEVICE_", "PKGTOOL_TEST_"];

/// Overrides settings with those from the environment.
pub(super) fn apply(
    settings: GatewaySettings,
    variables: impl Iterator<Item = (String, String)>,
) -> Result<GatewaySettings, SettingsError> {
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
        let Some(value) = find(&mut table, PREFIX, &name) else {
            if is_other_variable(&name, &text) {
                continue;
            }
            return Err(unknown(name, &table));
        };
        match parse(value, &text) {
            Ok(parsed) => *value = parsed,
            Err(reason) => return Err(SettingsError::Variable { name, reason }),
        }
        // Checked one by one, so that the error names its variable.
        if let Err(error) = table.clone().try_into::<GatewaySettings>() {
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

/// Returns `true` if a variable that is not a setting has another known meaning.
fn is_other_variable(name: &str, text: &str) -> bool {
    OTHER_VARIABLES.contains(&name)
        || OTHER_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || is_of_kubernetes(name, text)
}

/// Returns `true` if Kubernetes made the variable. It sets variables with the address of every
/// service in each container, and a service may be called `pkgtool`.
fn is_of_kubernetes(name: &str, text: &str) -> bool {
    let is_address = text.contains("://") && name.contains("_PORT");
    let of_port = name.split_once("_PORT_").is_some_and(|(_, rest)| {
        let mut parts = rest.split('_');
        let is_number = parts.next().is_some_and(|part| part.parse::<u16>().is_ok());
        is_number && matches!(parts.next(), Some("TCP" | "UDP" | "SCTP"))
    });
    let is_of_service = name.ends_with("_SERVICE_HOST") || name.contains("_SERVICE_PORT");
    is_address || of_port || is_of_service
}

/// Returns the error for an unknown variable.
fn unknown(name: String, table: &Table) -> SettingsError {
    let mut known = Vec::new();
    list(table, PREFIX, &mut known);
    known.extend(OTHER_VARIABLES.map(str::to_owned));
    // The comparison is in lower case.
    let known: Vec<String> = known.iter().map(|name| name.to_lowercase()).collect();
    let meant = suggest::nearest(&name, known.iter().map(String::as_str));
    let meant = meant.map(|meant| format!("; did you mean {}?", meant.to_uppercase()));
    SettingsError::Variable {
        reason: format!(
            "unknown setting{}; `pkgtool serve --print-config` shows all of them",
            meant.unwrap_or_default()
        ),
        name,
    }
}

/// Lists the variables of all settings.
fn list(table: &Table, prefix: &str, names: &mut Vec<String>) {
    for (key, value) in table {
        let own = format!("{prefix}{}", key.to_uppercase());
        if let Value::Table(inner) = value {
            list(inner, &format!("{own}_"), names);
        }
        names.push(own);
    }
}

/// Finds the value of the setting that a variable names.
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

/// Parses text as a value of the same type as the current one.
fn parse(now: &Value, text: &str) -> Result<Value, String> {
    let expected = |what: &str| format!("expected {what}, found `{text}`");
    match now {
        Value::String(_) => Ok(Value::String(text.to_owned())),
        // All settings are non-negative.
        Value::Integer(_) => match text.parse() {
            Ok(number) if number >= 0 => Ok(Value::Integer(number)),
            _ => Err(expected("a whole number")),
        },
        Value::Float(_) => text
            .parse()
            .map(Value::Float)
            .map_err(|_| expected("a number")),
        Value::Boolean(_) => text
            .parse()
            .map(Value::Boolean)
            .map_err(|_| expected("`true` or `false`")),
        // Lists of strings are separated by commas; lists of tables, and tables, are TOML.
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

    fn with(variables: &[(&str, &str)]) -> Result<GatewaySettings, SettingsError> {
        let variables = variables.iter();
        GatewaySettings::read(
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
            ("PKGTOOL_DEFAULTS_LISTED", "false"),
            ("PKGTOOL_SERVICES", "{ sum = { instances = 2 } }"),
            ("PKGTOOL_LIMITS_WAITING", "17"),
            ("PKGTOOL_LIMITS_RUNNING", "5"),
            ("PKGTOOL_LIMITS_ATTEMPTS", "2"),
            ("PKGTOOL_API_KEY", "not a setting"),
            ("PKGTOOL_TEST_ORT", "the tests'"),
            ("PKGTOOL_SERVICE_HOST", "10.0.0.7"),
            ("PKGTOOL_SERVICE_PORT_HTTP", "80"),
            ("PKGTOOL_PORT", "tcp://10.0.0.7:80"),
            ("PKGTOOL_PORT_80_TCP_ADDR", "10.0.0.7"),
            ("PKGTOOL_PORT_80_TCP_PROTO", "tcp"),
            ("PKGTOOLS", "somebody else's"),
        ])
        .expect("they are right");
        assert_eq!(settings.listen.to_string(), "0.0.0.0:9000");
        assert_eq!(settings.limits.body_bytes, 1024);
        assert_eq!(settings.cors.origins.len(), 2);
        let limits = &settings.limits;
        assert_eq!(
            (limits.waiting, limits.running, limits.attempts),
            (17, 5, 2)
        );
        let quota = settings.caps().quota;
        assert_eq!((quota.tasks, quota.bytes), (1000, 1_000_000));
        assert_eq!(settings.tasks.record_ttl(), None);
        assert_eq!(settings.tasks.inline_bytes, 4096);
        let sum = settings.service("local", "sum").expect("it is right");
        assert_eq!((sum.instances, sum.warm_up), (2, true));
    }

    #[test]
    fn wrong_variables_are_named() {
        for (name, text, hint) in [
            ("PKGTOOL_LISTEN", "here", "PKGTOOL_LISTEN"),
            ("PKGTOOL_LIMITS_BODY_BYTES", "much", "a whole number"),
            ("PKGTOOL_LIMITS_WAITING", "0", "limits.waiting"),
            ("PKGTOOL_LIMITS_WAITIN", "7", "mean PKGTOOL_LIMITS_WAITING?"),
            (
                "PKGTOOL_LIMIT_BODY_BYTES",
                "7",
                "mean PKGTOOL_LIMITS_BODY_BYTES?",
            ),
            ("PKGTOOL_APIKEY", "7", "mean PKGTOOL_API_KEY?"),
            ("PKGTOOL_PORT", "9000", "unknown setting"),
            ("PKGTOOL_", "7", "unknown setting"),
            ("PKGTOOL_LIMITS_HEADER_COUNT", "0", "at least 1"),
            ("PKGTOOL_LIMITS_HEADER_COUNT", "40000", "at most 32768"),
            (
                "PKGTOOL_LIMITS_CONNECTIONS",
                "9223372036854775807",
                "at most",
            ),
            ("PKGTOOL_LISTEN", "localhost", "HOST:PORT"),
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
            ("PKGTOOL_LIMITS_STORED_TASKS", "-1", "a whole number"),
            ("PKGTOOL_SERVICES", "{ sum = { instance = 2 } }", "instance"),
        ] {
            let error = with(&[(name, text)]).expect_err(name).to_string();
            assert!(error.contains(hint), "{error}");
        }
    }

    /// Invariant of the file: this test detects a setting without a variable.
    #[test]
    fn every_setting_has_its_variable() {
        let mut table = Table::try_from(GatewaySettings::default()).expect("it can be written");
        let mut names = Vec::new();
        list(&table, PREFIX, &mut names);
        assert!(names.len() > 40, "{names:?}");
        assert!(names.contains(&"PKGTOOL_DEFAULTS_LISTED".to_owned()));
        for name in names {
            assert!(find(&mut table, PREFIX, &name).is_some(), "{name}");
        }
    }

    #[test]
    fn what_is_printed_is_read_again() {
        let settings = GatewaySettings::default();
        assert_eq!(
            toml::from_str::<GatewaySettings>(&settings.print()),
            Ok(settings)
        );
    }
}
