//! Life cycle of a device's sessions: warm-up, activity and draining.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use super::super::CallError;
use super::super::away::NO_ACCOUNT;
use super::super::engine::Activity;
use super::{Device, embedding, runnable};

impl Device {
    /// Returns the current activity of all its endpoints.
    pub fn activity(&self) -> Activity {
        let activities = self.endpoints().map(|endpoint| endpoint.activity());
        let entries = self.variants.entries.iter();
        let generators = entries.filter_map(|entry| entry.generator.get());
        let first = Activity {
            waiting: generators.map(|generator| generator.waiting()).sum(),
            ..Activity::default()
        };
        activities.fold(first, |sum, one| Activity {
            waiting: sum.waiting + one.waiting,
            running: sum.running + one.running,
            sessions: sum.sessions + one.sessions,
            runs: sum.runs + one.runs,
            crashes: sum.crashes + one.crashes,
        })
    }

    /// Loads the model that a request without a config would run. Does nothing if such a request is
    /// rejected, because one of several components would be a guess.
    pub async fn warm(&self) -> Result<(), CallError> {
        let Ok(entry) = self.chosen(None) else {
            return Ok(());
        };
        let model = runnable(entry)?;
        if entry.generates() {
            return self.generator(entry)?.warm().await;
        }
        let endpoint = self.endpoint(entry, model)?;
        if let Some(text) = entry
            .text
            .as_ref()
            .filter(|text| text.embeds(&model.signature))
        {
            let client = self.engines.parsers(NO_ACCOUNT);
            let embedder = text.embedder(&entry.embedder, &self.tokenizers, model, &client);
            return embedding::try_text(endpoint, embedder.await?, client).await;
        }
        endpoint.warm().await
    }

    /// Rejects new requests, finishes the pending ones and ends the sessions.
    pub async fn drain(&self) {
        let making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        self.drained.store(true, Ordering::Release);
        drop(making);
        // All endpoints start to drain before any is waited for.
        let endings = self.endpoints().cloned().map(|endpoint| {
            tokio::spawn(async move {
                endpoint.drain().await;
            })
        });
        let endings: Vec<_> = endings.collect();
        for ending in endings {
            if let Err(error) = ending.await {
                tracing::error!(%error, "draining an endpoint failed");
            }
        }
    }
}
