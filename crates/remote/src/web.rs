//! The HTTP client. It follows redirects itself, sends the token only to the hub, and counts
//! received data before it is stored.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_ENCODING, HeaderName, HeaderValue, IF_RANGE,
    LOCATION, RANGE,
};
use reqwest::{Client, Method, Response, Url};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::gate::{AddressFilter, FilteredResolver, PRIVATE_ADDRESS_ERROR};
use super::{PullLimits, RemoteError, RemoteSettings};

/// Maximum number of redirects per request.
const MAX_REDIRECTS: usize = 10;
/// Maximum number of attempts of a request that fails with transient errors.
const MAX_ATTEMPTS: u32 = 3;
/// Pause before the second attempt. It doubles before each further one.
const RETRY_PAUSE: Duration = Duration::from_millis(250);

/// Network traffic of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of requests, including redirects.
    pub requests: u64,
    /// Number of bytes of bodies.
    pub bytes: u64,
}

/// The HTTP client of one run.
#[derive(Debug)]
pub(super) struct HttpClient {
    runtime: Runtime,
    client: Client,
    gate: Arc<AddressFilter>,
    /// The token, and the only origin that receives it.
    token: Option<(Url, HeaderValue)>,
    pub(super) limits: PullLimits,
    started: Instant,
    requests: AtomicU64,
    bytes: AtomicU64,
    faults: Mutex<Vec<RemoteError>>,
}

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub(super) struct RequestParams {
    /// First and last byte. Without a last byte, everything from the first on.
    pub(super) range: Option<(u64, Option<u64>)>,
    /// Tag of the file: the range applies only if the file still has it.
    pub(super) if_range: Option<String>,
    /// Send a HEAD request.
    pub(super) head: bool,
}

impl RequestParams {
    /// Requests a range of bytes, both ends included.
    pub(super) fn part(first: u64, last: u64) -> Self {
        Self {
            range: Some((first, Some(last))),
            ..Self::default()
        }
    }
}

/// The bytes that arrived and the time spent waiting for them, since the window began.
#[derive(Debug, Default)]
struct TransferRate {
    waited: Duration,
    bytes: u64,
}

impl TransferRate {
    /// Records a piece of a body. At the end of a window, returns the number of received bytes if
    /// it is below the minimum. Only time spent waiting for the server counts, not time spent
    /// elsewhere, such as writing to a disk.
    fn too_slow(&mut self, bytes: u64, waited: Duration, limits: &PullLimits) -> Option<u64> {
        self.bytes += bytes;
        self.waited += waited;
        if self.waited < limits.rate_window {
            return None;
        }
        let Self { bytes, .. } = std::mem::take(self);
        (bytes < limits.min_window_bytes).then_some(bytes)
    }
}

/// An answer whose body has not been read.
#[derive(Debug)]
pub(super) struct WebAnswer<'w> {
    web: &'w HttpClient,
    pace: TransferRate,
    response: Response,
    /// HTTP status.
    pub(super) status: u16,
    /// URL that answered, after redirects.
    pub(super) url: Url,
}

impl HttpClient {
    /// Creates the client of a run that begins at the URL `first`.
    pub(super) fn new(settings: &RemoteSettings, first: &Url) -> Result<Self, RemoteError> {
        let fail = |error: &dyn std::fmt::Display| {
            RemoteError::Setting(format!("cannot start the HTTP client: {error}"))
        };
        // Another part of the process may have installed a provider already, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(|error| fail(&error))?;
        let gate = Arc::new(AddressFilter::new(settings.allow_private, first));
        let client = Client::builder()
            .connect_timeout(settings.limits.connect)
            .redirect(reqwest::redirect::Policy::none())
            .dns_resolver(Arc::new(FilteredResolver(Arc::clone(&gate))))
            .user_agent(concat!("pkgtool/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| fail(&error))?;
        Ok(Self {
            runtime,
            client,
            gate,
            token: token(settings)?,
            limits: settings.limits,
            started: Instant::now(),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            faults: Mutex::default(),
        })
    }

    /// Returns the traffic so far.
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    /// Records an error that cannot be returned where it occurs.
    pub(super) fn record_fault(&self, fault: RemoteError) {
        let mut faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.push(fault);
    }

    /// Returns the first recorded error.
    pub(super) fn fault(&self) -> Option<RemoteError> {
        let faults = self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.first().cloned()
    }

    /// Sends a request, and retries it after transient errors.
    pub(super) fn get(&self, url: &Url, ask: &RequestParams) -> Result<WebAnswer<'_>, RemoteError> {
        let mut pause = RETRY_PAUSE;
        for _ in 1..MAX_ATTEMPTS {
            match self.follow(url, ask) {
                Err(error) if error.is_transient() => {
                    std::thread::sleep(pause);
                }
                Ok(answer) if matches!(answer.status, 429 | 502 | 503 | 504) => {
                    std::thread::sleep(pause);
                }
                done => return done,
            }
            pause *= 2;
        }
        self.follow(url, ask)
    }

    /// Returns the whole body of a file with at most `most` bytes, or `None` if the file is
    /// missing.
    pub(super) fn body(
        &self,
        url: &Url,
        most: u64,
    ) -> Result<Option<(Url, String, Vec<u8>)>, RemoteError> {
        let mut answer = self.get(url, &RequestParams::default())?;
        match answer.status {
            200 => {}
            404 | 410 => return Ok(None),
            _ => return Err(answer.refused()),
        }
        let kind = answer.header("content-type").unwrap_or_default();
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk()? {
            if (body.len() + chunk.len()) as u64 > most {
                return Err(RemoteError::Listing {
                    url: url.to_string(),
                    reason: format!("more than {most} bytes"),
                });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some((answer.url.clone(), kind, body)))
    }

    fn follow(&self, first: &Url, ask: &RequestParams) -> Result<WebAnswer<'_>, RemoteError> {
        let mut url = first.clone();
        let mut seen = HashSet::new();
        let mut trusted = true;
        let stray = |reason: String| RemoteError::Redirect {
            url: without_query(first),
            reason,
        };
        loop {
            if !self.gate.allows(&url) {
                return Err(Self::private(first, &url));
            }
            if !seen.insert(url.clone()) {
                return Err(stray("redirects form a loop".to_owned()));
            }
            if seen.len() > MAX_REDIRECTS {
                return Err(stray(format!("more than {MAX_REDIRECTS} redirects")));
            }
            let response = self.send(first, &url, ask, trusted)?;
            let status = response.status().as_u16();
            let location = response.headers().get(LOCATION);
            let Some(location) = location.filter(|_| matches!(status, 301 | 302 | 303 | 307 | 308))
            else {
                return self.checked(response, url);
            };
            let text = location
                .to_str()
                .map_err(|_| stray("redirect without a valid target".to_owned()))?;
            let next = url
                .join(text)
                .map_err(|error| stray(format!("invalid redirect to `{text}`: {error}")))?;
            if !matches!(next.scheme(), "http" | "https")
                || url.scheme() == "https" && next.scheme() == "http"
            {
                return Err(stray(format!(
                    "unsupported redirect from {} to {}",
                    url.scheme(),
                    next.scheme()
                )));
            }
            trusted &= next.origin() == url.origin();
            url = next;
        }
    }

    fn send(
        &self,
        first: &Url,
        url: &Url,
        ask: &RequestParams,
        trusted: bool,
    ) -> Result<Response, RemoteError> {
        let spent = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(most) = self.limits.requests
            && spent > most
        {
            return Err(RemoteError::Budget {
                url: without_query(first),
                most: format!("{most} requests"),
            });
        }
        let method = if ask.head { Method::HEAD } else { Method::GET };
        let mut request = self
            .client
            .request(method, url.clone())
            .header(ACCEPT_ENCODING, "identity")
            .header(ACCEPT, "*/*");
        if let Some((from, to)) = ask.range {
            let to = to.map(|to| to.to_string()).unwrap_or_default();
            request = request.header(RANGE, format!("bytes={from}-{to}"));
        }
        if let Some(tag) = &ask.if_range {
            request = request.header(IF_RANGE, tag);
        }
        if let Some((origin, token)) = &self.token
            && trusted
            && origin.origin() == url.origin()
        {
            request = request.header(AUTHORIZATION, token.clone());
        }
        match self.wait(first, request.send())? {
            Ok(response) => Ok(response),
            Err(error) if has_cause(&error, PRIVATE_ADDRESS_ERROR) => {
                Err(Self::private(first, url))
            }
            Err(error) => Err(RemoteError::Unreachable {
                url: without_query(first),
                reason: innermost(&error),
            }),
        }
    }

    fn checked(&self, response: Response, url: Url) -> Result<WebAnswer<'_>, RemoteError> {
        let coding = response.headers().get(CONTENT_ENCODING);
        let coding = coding
            .and_then(|coding| coding.to_str().ok())
            .unwrap_or("identity");
        if !coding.eq_ignore_ascii_case("identity") {
            return Err(RemoteError::lie(
                &without_query(&url),
                format!("requested uncompressed bytes, got the encoding `{coding}`"),
            ));
        }
        Ok(WebAnswer {
            web: self,
            pace: TransferRate::default(),
            status: response.status().as_u16(),
            response,
            url,
        })
    }

    fn private(first: &Url, url: &Url) -> RemoteError {
        RemoteError::Private {
            url: without_query(first),
            host: url.host_str().unwrap_or_default().to_owned(),
        }
    }

    /// Waits for a server, up to the idle timeout and the time limit of the run.
    fn wait<T>(&self, url: &Url, work: impl Future<Output = T>) -> Result<T, RemoteError> {
        let left = self
            .limits
            .total
            .map(|total| total.saturating_sub(self.started.elapsed()));
        let patience = left.map_or(self.limits.idle, |left| left.min(self.limits.idle));
        let outcome = self
            .runtime
            .block_on(async { timeout(patience, work).await });
        outcome.map_err(|_| match (left, self.limits.total) {
            (Some(left), Some(total)) if left <= self.limits.idle => RemoteError::TooSlow {
                url: without_query(url),
                seconds: total.as_secs(),
            },
            _ => RemoteError::Stalled {
                url: without_query(url),
                seconds: self.limits.idle.as_secs(),
            },
        })
    }

    fn spend(&self, url: &Url, count: u64) -> Result<(), RemoteError> {
        let spent = self.bytes.fetch_add(count, Ordering::Relaxed) + count;
        match self.limits.run_bytes {
            Some(most) if spent > most => Err(RemoteError::Budget {
                url: without_query(url),
                most: format!("{most} bytes"),
            }),
            _ => Ok(()),
        }
    }
}

impl WebAnswer<'_> {
    /// Returns a header as text.
    pub(super) fn header(&self, name: &'static str) -> Option<String> {
        let value = self.response.headers().get(HeaderName::from_static(name))?;
        value.to_str().ok().map(str::to_owned)
    }

    /// Returns the version marker of the file: its `ETag`, otherwise its modification time.
    pub(super) fn version_marker(&self) -> Option<String> {
        self.header("etag").or_else(|| self.header("last-modified"))
    }

    /// Returns the announced length of the body.
    pub(super) fn length(&self) -> Option<u64> {
        self.header("content-length")?.trim().parse().ok()
    }

    /// Returns the next piece of the body, or `None` at its end.
    pub(super) fn chunk(
        &mut self,
    ) -> Result<Option<impl std::ops::Deref<Target = [u8]> + use<>>, RemoteError> {
        let began = Instant::now();
        let chunk = self.web.wait(&self.url, self.response.chunk())?;
        let waited = began.elapsed();
        let chunk = chunk.map_err(|error| RemoteError::Unreachable {
            url: without_query(&self.url),
            reason: innermost(&error),
        })?;
        if let Some(chunk) = &chunk {
            self.web.spend(&self.url, chunk.len() as u64)?;
            let limits = &self.web.limits;
            if let Some(bytes) = self.pace.too_slow(chunk.len() as u64, waited, limits) {
                return Err(RemoteError::TooSlowTransfer {
                    url: without_query(&self.url),
                    bytes,
                    seconds: limits.rate_window.as_secs(),
                    least: limits.min_window_bytes,
                });
            }
        }
        Ok(chunk)
    }

    /// Returns the error for an answer without success.
    pub(super) fn refused(&self) -> RemoteError {
        RemoteError::Status {
            url: without_query(&self.url),
            status: self.status,
            hint: match self.status {
                401 | 403 => {
                    "; if a token is needed, set HF_TOKEN (it is sent only to the hub's endpoint)"
                }
                404 | 410 => ": not found",
                429 => ": too many requests; try again later",
                500.. => ": server error; try again later",
                _ => "",
            },
        }
    }
}

/// Formats a URL without its query, which may be a secret.
pub(super) fn without_query(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.into()
}

fn token(settings: &RemoteSettings) -> Result<Option<(Url, HeaderValue)>, RemoteError> {
    let Some(token) = settings
        .token
        .as_deref()
        .map(str::trim)
        .filter(|token| !token.is_empty())
    else {
        return Ok(None);
    };
    let wrong =
        || RemoteError::Setting("HF_TOKEN has characters that are invalid in a token".to_owned());
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| wrong())?;
    value.set_sensitive(true);
    let endpoint = super::address::endpoint(&settings.hub_endpoint)?;
    Ok(Some((endpoint, value)))
}

/// Returns the innermost cause of an error, which is the most specific one.
fn innermost(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

fn has_cause(error: &reqwest::Error, text: &str) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(one) = cause {
        if one.to_string() == text {
            return true;
        }
        cause = one.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// A server that sends a byte now and then never exceeds the idle timeout. It is rejected
    /// because of its low transfer rate.
    #[test]
    fn a_server_that_drips_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).expect("a request") > 0);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let limits = PullLimits {
            rate_window: Duration::from_millis(200),
            min_window_bytes: 1000,
            total: None,
            ..PullLimits::default()
        };
        let settings = RemoteSettings {
            hub_endpoint: "https://hub.example".to_owned(),
            token: None,
            allow_private: false,
            opens_models: true,
            limits,
        };
        let url = Url::parse(&format!("http://{address}/m.pte")).expect("a URL");
        let web = HttpClient::new(&settings, &url).expect("a client");
        let mut answer = web.get(&url, &RequestParams::default()).expect("a head");
        let error = loop {
            match answer.chunk() {
                Ok(chunk) => assert!(chunk.is_some(), "the body does not end"),
                Err(error) => break error,
            }
        };
        assert!(
            matches!(error, RemoteError::TooSlowTransfer { bytes: 1..1000, .. }),
            "{error}"
        );
        assert!(!error.is_transient(), "{error}");
        drop(answer);
        drop(web);
        server.join().expect("the server ends");
    }

    #[test]
    fn only_waiting_counts_and_a_window_begins_anew() {
        let limits = PullLimits::default();
        let mut pace = TransferRate::default();
        let second = Duration::from_secs(1);
        for _ in 0..200 {
            assert_eq!(pace.too_slow(2048, second, &limits), None);
            assert_eq!(pace.too_slow(0, Duration::ZERO, &limits), None);
        }
        let mut pace = TransferRate::default();
        let slow = (0..60).find_map(|_| pace.too_slow(1, second, &limits));
        assert_eq!(slow, Some(60));
    }
}
