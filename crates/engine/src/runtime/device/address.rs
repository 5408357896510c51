//! Names of devices, as users write them.

use std::fmt;
use std::process::Command;
use std::str::FromStr;

/// The folder on an Android device that its shell may write to and run programs from.
const ANDROID_DIRECTORY: &str = "/data/local/tmp/pkgtool";

/// Options of OpenSSH: no questions, and an end when the other machine is silent. The user's own configuration decides
/// the rest.
const SSH_OPTIONS: [&str; 7] = [
    "-T",
    "-o",
    "BatchMode=yes",
    "-o",
    "ConnectTimeout=15",
    "-o",
    "ServerAliveInterval=5",
];

/// A device, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum DeviceAddress {
    /// This machine.
    Local,
    /// An Android device, by its serial number if it is not the only one.
    Adb(Option<String>),
    /// A machine with an SSH server.
    Ssh {
        /// User and name of the machine.
        host: String,
        /// The port, unless the user's configuration decides it.
        port: Option<u16>,
    },
    /// A command whose standard input and output are those of a shell there.
    Exec(String),
}

/// A text that names no device.
#[derive(Debug, thiserror::Error)]
#[error(
    "`{0}` names no device: write `adb`, `adb:SERIAL`, `ssh:[user@]host[:port]`, `exec:COMMAND` or `local`"
)]
pub struct InvalidDevice(String);

impl DeviceAddress {
    /// Reads several addresses between commas. A comma in a command belongs to it, unless another address follows.
    pub fn list(text: &str) -> Result<Vec<Self>, InvalidDevice> {
        let mut parts: Vec<String> = Vec::new();
        for part in text.split(',') {
            let begins = part.parse::<Self>().is_ok();
            match parts.last_mut() {
                Some(last) if !begins && last.starts_with("exec:") => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => parts.push(part.to_owned()),
            }
        }
        parts.iter().map(|part| part.parse()).collect()
    }

    /// Returns the command whose standard input and output are those of a shell on the device; `None` for this machine.
    pub(super) fn shell(&self) -> Option<Command> {
        let command = match self {
            Self::Local => return None,
            Self::Adb(serial) => {
                let mut adb = Command::new("adb");
                if let Some(serial) = serial {
                    adb.args(["-s", serial]);
                }
                // Without a terminal, bytes pass unchanged.
                adb.args(["shell", "-T", "sh"]);
                adb
            }
            Self::Ssh { host, port } => {
                let mut ssh = Command::new("ssh");
                ssh.args(SSH_OPTIONS);
                if let Some(port) = port {
                    ssh.args(["-p", &port.to_string()]);
                }
                // The shell of the user may be of another kind.
                ssh.args(["--", host, "sh"]);
                ssh
            }
            Self::Exec(given) => {
                let mut shell = Command::new("sh");
                shell.args(["-c", given]);
                shell
            }
        };
        Some(command)
    }

    /// Returns the directory for files on the device; `None` if the device names it.
    pub(super) fn directory(&self) -> Option<&'static str> {
        matches!(self, Self::Adb(_)).then_some(ANDROID_DIRECTORY)
    }

    /// Returns what to do if the device cannot be reached.
    pub(super) fn help(&self) -> &'static str {
        match self {
            Self::Local => "",
            Self::Adb(_) => {
                "connect the device, allow debugging on its screen, and see that `adb devices` lists it"
            }
            Self::Ssh { .. } => {
                "see that `ssh` reaches the machine without a password: a key in the agent or in the configuration"
            }
            Self::Exec(_) => {
                "see that the command gives a shell that reads commands from its standard input"
            }
        }
    }
}

impl FromStr for DeviceAddress {
    type Err = InvalidDevice;

    fn from_str(text: &str) -> Result<Self, InvalidDevice> {
        let invalid = || InvalidDevice(text.escape_debug().to_string());
        let is_word = |word: &str| {
            !word.is_empty()
                && !word.starts_with('-')
                && !word.contains(|c: char| c.is_whitespace() || c.is_control())
        };
        match text.split_once(':').unwrap_or((text, "")) {
            ("local", "") => Ok(Self::Local),
            ("adb", "") if text == "adb" => Ok(Self::Adb(None)),
            ("adb", serial) if is_word(serial) => Ok(Self::Adb(Some(serial.to_owned()))),
            ("ssh", place) => {
                let (host, port) = split_port(place).ok_or_else(invalid)?;
                if !is_word(&host) || host.ends_with('@') {
                    return Err(invalid());
                }
                Ok(Self::Ssh { host, port })
            }
            ("exec", command) if !command.trim().is_empty() => {
                Ok(Self::Exec(command.trim().to_owned()))
            }
            _ => Err(invalid()),
        }
    }
}

/// Splits `host:port`. An IPv6 address with a port stands in brackets.
fn split_port(place: &str) -> Option<(String, Option<u16>)> {
    let (user, host) = match place.rsplit_once('@') {
        Some((user, host)) => (format!("{user}@"), host),
        None => (String::new(), place),
    };
    if let Some(bracketed) = host.strip_prefix('[') {
        let (address, rest) = bracketed.split_once(']')?;
        let port = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(':')?.parse().ok()?),
        };
        return Some((format!("{user}{address}"), port));
    }
    match host.split_once(':') {
        Some((name, port)) if !port.contains(':') => {
            Some((format!("{user}{name}"), Some(port.parse().ok()?)))
        }
        _ => Some((format!("{user}{host}"), None)),
    }
}

/// As users write it.
impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => write!(f, "local"),
            Self::Adb(None) => write!(f, "adb"),
            Self::Adb(Some(serial)) => write!(f, "adb:{serial}"),
            Self::Ssh { host, port: None } => write!(f, "ssh:{host}"),
            Self::Ssh {
                host,
                port: Some(port),
            } => {
                let needs_brackets = host.matches(':').count() > 1;
                match host.rsplit_once('@') {
                    Some((user, address)) if needs_brackets => {
                        write!(f, "ssh:{user}@[{address}]:{port}")
                    }
                    None if needs_brackets => write!(f, "ssh:[{host}]:{port}"),
                    _ => write!(f, "ssh:{host}:{port}"),
                }
            }
            Self::Exec(command) => write!(f, "exec:{command}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in [
            "local",
            "adb",
            "adb:0A1B",
            "adb:192.168.1.5:5555",
            "ssh:pi",
            "ssh:me@pi:2222",
            "ssh:me@[fe80::1]:22",
            "ssh:fe80::1",
            "exec:docker exec -i box sh",
        ] {
            let address: DeviceAddress = text.parse().expect("an address");
            assert_eq!(address.to_string(), text);
        }
    }

    #[test]
    fn other_texts_name_no_device() {
        for text in [
            "",
            "adb:",
            "adb:-s x",
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh:pi:x",
            "ssh:pi:70000",
            "ssh:a b",
            "ssh:me@",
            "ssh:[fe80::1",
            "exec:",
            "exec: ",
            "local:x",
            "usb",
        ] {
            assert!(text.parse::<DeviceAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_keeps_the_commas_of_commands() {
        let list = DeviceAddress::list("adb,exec:run --with a,b,local,ssh:pi").expect("addresses");
        let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["adb", "exec:run --with a,b", "local", "ssh:pi"]);
        assert!(DeviceAddress::list("adb,pi").is_err());
    }
}
