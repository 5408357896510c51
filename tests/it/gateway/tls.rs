//! Tests of TLS with curl. The fixtures hold the certificate, which is valid only for `localhost`.

use std::process::Command;

use crate::support::environment::say;
use crate::support::fixture;
use crate::support::gateway::Setup;
use crate::support::run::pkgtool;

#[test]
fn a_certificate_makes_it_https() {
    if Command::new("curl").arg("--version").output().is_err() {
        say("SKIPPED a_certificate_makes_it_https: curl is missing");
        return;
    }
    let (certificate, key) = (fixture("tls/certificate.pem"), fixture("tls/key.pem"));
    let gateway = Setup::new()
        .settings(&format!(
            "[tls]\ncertificate = {certificate:?}\nkey = {key:?}"
        ))
        .start();
    let url = format!("https://localhost:{}/healthz", gateway.address.port());
    for version in ["--http1.1", "--http2"] {
        let asked = Command::new("curl")
            .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", version])
            .args([
                "--resolve",
                &format!("localhost:{}:127.0.0.1", gateway.address.port()),
            ])
            .arg("--cacert")
            .arg(&certificate)
            .arg(&url)
            .output()
            .expect("curl runs");
        assert_eq!(
            String::from_utf8_lossy(&asked.stdout),
            "200",
            "{version}: {asked:?}"
        );
    }
}

#[test]
fn wrong_certificates_are_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = directory.path().join("data");
    let serve = |certificate: &str, key: &str| {
        let config = directory.path().join("gateway.toml");
        let text = format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n");
        std::fs::write(&config, text).expect("a file");
        let mut command = pkgtool(["serve", "--listen", "127.0.0.1:0", "--config"]).into_command();
        let ran = command.arg(&config).arg("--data-dir").arg(&data).output();
        let ran = ran.expect("it runs");
        assert_eq!(ran.status.code(), Some(2));
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    let certificate = fixture("tls/certificate.pem").display().to_string();
    let key = fixture("tls/key.pem").display().to_string();
    for (certificate, key, says) in [
        (certificate.as_str(), "/nosuch", "/nosuch"),
        ("/nosuch", key.as_str(), "/nosuch"),
        (
            certificate.as_str(),
            certificate.as_str(),
            "invalid private key",
        ),
        (key.as_str(), key.as_str(), "missing certificate"),
        (certificate.as_str(), "", "incomplete"),
    ] {
        let said = serve(certificate, key);
        assert!(said.contains(says), "{says} in {said}");
    }
}
