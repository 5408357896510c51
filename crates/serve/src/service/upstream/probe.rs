//! Health checks of an upstream's addresses, so that a recovered address gets requests again
//! without a trial request.
//!
//! Invariant: a check is limited in time and in the bytes it reads. Checks end with the upstream.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use reqwest::{RequestBuilder, Response};

use super::pool::Target;
use super::{Upstream, reason};

/// Time limit of a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum bytes read of a check's answer.
const MAX_READ_BYTES: usize = 64 << 10;

/// Checks the addresses periodically while the upstream exists.
pub(super) fn watch(upstream: &Arc<Upstream>) {
    let every = upstream.options.health_every;
    let upstream = Arc::downgrade(upstream);
    tokio::spawn(async move {
        while let Some(()) = check_all(&upstream).await {
            tokio::time::sleep(every).await;
        }
    });
}

async fn check_all(upstream: &Weak<Upstream>) -> Option<()> {
    let upstream = upstream.upgrade()?;
    let targets = upstream.pool.targets().iter();
    join_all(targets.map(|target| upstream.check(target))).await;
    Some(())
}

impl Upstream {
    /// Checks the health of an address. Without a health path, it only checks whether a down
    /// address answers at all.
    async fn check(&self, target: &Target) {
        let address = &target.address;
        if let Some(path) = &self.options.health {
            let found = self.ask(self.client.get(address.at(path))).await;
            let found = found.and_then(|answer| match answer.status() {
                status if status.is_success() => Ok(()),
                status => Err(format!("its health check answered {}", status.as_u16())),
            });
            self.pool.checked(target, found);
        } else if target.is_down() && self.ask(self.client.head(address.url())).await.is_ok() {
            self.pool.checked(target, Ok(()));
        }
    }

    async fn ask(&self, request: RequestBuilder) -> Result<Response, String> {
        let asked = async {
            let mut answer = request.headers(self.headers.clone()).send().await?;
            // Reading the answer lets the connection be reused.
            let mut read = 0;
            while let Some(chunk) = answer.chunk().await? {
                read += chunk.len();
                if read > MAX_READ_BYTES {
                    break;
                }
            }
            Ok(answer)
        };
        match tokio::time::timeout(CHECK_TIMEOUT, asked).await {
            Ok(asked) => asked.map_err(reason),
            Err(_) => Err(format!("no answer within {} s", CHECK_TIMEOUT.as_secs())),
        }
    }
}
