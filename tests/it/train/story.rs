//! Scenarios that every training store must pass.

use std::sync::Arc;

use pkgtool_serve::account::AccountId;
use pkgtool_serve::database::{DatabaseUrl, Timestamp};
use pkgtool_serve::task::Stores;
use pkgtool_serve::train::dataset::{ContentKind, DatasetFormat, DatasetSummary};
use pkgtool_serve::train::{
    Dataset, DatasetDeletion, DatasetId, Job, JobCreation, JobId, JobState, NewDataset, NewDerived,
    NewFitConfig, NewJob, TrainingStore,
};

use super::memory::MemoryTraining;
use crate::support::postgres::fresh_database;
use crate::task::{accounts, block_on};

const NOW: Timestamp = Timestamp(1_000);
const LATER: Timestamp = Timestamp(2_000);
const ONE: AccountId = AccountId(1);
const TWO: AccountId = AccountId(2);

/// Runs a scenario on every store; accounts 1 and 2 have the services 1 to 4.
fn of_every_store<F: Future<Output = ()>>(story: impl Fn(Arc<dyn TrainingStore>) -> F) {
    let directory = tempfile::tempdir().expect("a directory");
    let urls = [DatabaseUrl::in_directory(directory.path())].into_iter();
    block_on(async {
        for url in urls.chain(fresh_database("stories of trainings")) {
            of_database(&url, &story).await;
        }
        story(Arc::new(MemoryTraining::default())).await;
    });
}

async fn of_database<F: Future<Output = ()>>(
    url: &DatabaseUrl,
    story: impl Fn(Arc<dyn TrainingStore>) -> F,
) {
    let stores = Stores::open(url).await.expect("it opens");
    let made = accounts(&stores).await;
    for name in ["one", "two"] {
        made.create(name, 10, NOW).await.expect("it is new");
    }
    let numbers = stores.accounts().await.expect("it opens");
    for name in ["a", "b", "c", "d"] {
        numbers.service_number(ONE, name).await.expect("it works");
    }
    story(stores.training().await.expect("it opens")).await;
    // The third process still sees the data of the first.
    for _ in 0..2 {
        let again = Stores::open(url).await.expect("it opens");
        again.training().await.expect("it opens");
    }
}

fn dataset(account: AccountId, name: &str) -> NewDataset {
    NewDataset {
        account,
        name: name.to_owned(),
        description: "of tests".to_owned(),
        data_type: String::new(),
        access_mode: "private".to_owned(),
        file_name: "a.csv".to_owned(),
        format: DatasetFormat::Csv,
        summary: DatasetSummary {
            format: DatasetFormat::Csv,
            holds: ContentKind::Image,
            rows: 3,
            multi_label: false,
            labels: [("x".to_owned(), 1), ("é".to_owned(), 2)].into(),
        },
        blob: format!("dataset/aa/{}-{name}", account.0),
        size: u64::from(u32::MAX) + 7,
        sha256: [9; 32],
    }
}

fn new_job(service: i64, dataset: DatasetId) -> NewJob {
    NewJob {
        account: ONE,
        service,
        service_name: "s".to_owned(),
        dataset,
        config: "{}".to_owned(),
    }
}

/// Stores a dataset.
async fn stored(
    store: &dyn TrainingStore,
    account: AccountId,
    name: &str,
    now: Timestamp,
) -> Dataset {
    let made = store.create_dataset(dataset(account, name), now).await;
    made.expect("it works")
}

/// Claims a job that waits.
async fn claimed(store: &dyn TrainingStore, now: Timestamp) -> Job {
    let job = store.claim_job(now).await.expect("it works");
    job.expect("it waits")
}

async fn begun(store: &dyn TrainingStore, service: i64, dataset: DatasetId) -> Job {
    let created = store.create_job(new_job(service, dataset), NOW).await;
    assert!(matches!(created, Ok(JobCreation::Done(_))), "{created:?}");
    claimed(store, NOW).await
}

#[test]
fn datasets_are_listed_by_account_and_go_once() {
    of_every_store(async |store| {
        let made = stored(&*store, ONE, "a", NOW).await;
        let other = stored(&*store, TWO, "a", LATER).await;
        assert_eq!((made.is.clone(), made.created_at), (dataset(ONE, "a"), NOW));
        assert_eq!(
            store.datasets(Some(ONE)).await.expect("it works"),
            std::slice::from_ref(&made)
        );
        assert_eq!(
            store.datasets(None).await.expect("it works"),
            [made.clone(), other]
        );
        assert_eq!(
            store.dataset(made.id).await.expect("it works"),
            Some(made.clone())
        );
        let deleted = store.delete_dataset(made.id).await.expect("it works");
        assert_eq!(deleted, DatasetDeletion::Done(Box::new(made.clone())));
        assert_eq!(
            store.delete_dataset(made.id).await.expect("it works"),
            DatasetDeletion::Unknown
        );
        let third = stored(&*store, ONE, "b", NOW).await;
        assert_ne!(third.id, made.id, "a number is given once");
    });
}

#[test]
fn a_new_default_takes_the_place_of_the_old() {
    of_every_store(async |store| {
        let new = |service, name: &str, is_default| NewFitConfig {
            service,
            name: name.to_owned(),
            config: "{\"l2\":1}".to_owned(),
            is_default,
        };
        for (service, name, is_default) in [
            (1, "a", true),
            (2, "b", true),
            (1, "c", false),
            (1, "d", true),
        ] {
            let made = store
                .create_fit_config(new(service, name, is_default), NOW)
                .await;
            assert_eq!(made.expect("it works").is, new(service, name, is_default));
        }
        let of = async |service| {
            let configs = store.fit_configs(service).await.expect("it works");
            let told = configs.into_iter().map(|it| (it.is.name, it.is.is_default));
            told.collect::<Vec<_>>()
        };
        let told = |name: &str, is_default| (name.to_owned(), is_default);
        assert_eq!(
            of(1).await,
            [told("a", false), told("c", false), told("d", true)]
        );
        assert_eq!(of(2).await, [told("b", true)]);
    });
}

#[test]
fn a_service_is_derived_once() {
    of_every_store(async |store| {
        let new = NewDerived {
            service: 2,
            owner: ONE,
            owner_name: "one".to_owned(),
            name: "b".to_owned(),
            base_owner: ONE,
            base_owner_name: "one".to_owned(),
            base: 1,
            base_name: "a".to_owned(),
            hidden: true,
        };
        let made = store
            .create_derived(new.clone(), NOW)
            .await
            .expect("it works");
        assert_eq!(made.expect("it is new").is, new);
        assert_eq!(
            store
                .create_derived(new.clone(), LATER)
                .await
                .expect("it works"),
            None
        );
        let all = store.derived().await.expect("it works");
        assert_eq!((all.len(), all[0].created_at), (1, NOW));
    });
}

#[test]
fn jobs_are_taken_in_turn_and_end_once() {
    of_every_store(async |store| {
        let data = stored(&*store, ONE, "a", NOW).await.id;
        let of_other = stored(&*store, TWO, "a", NOW).await.id;
        let refused = store.create_job(new_job(1, of_other), NOW).await;
        assert_eq!(refused.expect("it works"), JobCreation::NoDataset);
        for service in [1, 2, 3] {
            let created = store.create_job(new_job(service, data), NOW).await;
            assert!(matches!(created, Ok(JobCreation::Done(_))), "{created:?}");
        }
        let busy = store
            .create_job(new_job(1, data), NOW)
            .await
            .expect("it works");
        assert_eq!(busy, JobCreation::Busy(JobId(1)));
        let first = claimed(&*store, LATER).await;
        assert_eq!(
            (first.id, first.attempt, first.state),
            (JobId(1), 1, JobState::Running)
        );
        assert_eq!(first.started_at, Some(LATER));
        assert!(store.progress(first.id, 1, 40).await.expect("it works"));
        assert!(
            !store.progress(first.id, 2, 90).await.expect("it works"),
            "of another attempt"
        );
        assert_eq!(
            store.delete_dataset(data).await.expect("it works"),
            DatasetDeletion::Needed(first.id)
        );
        let second = claimed(&*store, LATER).await;
        assert_eq!(second.id, JobId(2));
        let done = store.end_job(first.id, 1, Ok("{}".to_owned()), LATER).await;
        assert!(done.expect("it works"));
        let again = store
            .end_job(first.id, 1, Err("late".to_owned()), LATER)
            .await;
        assert!(!again.expect("it works"), "it ended");
        let failed = store
            .end_job(second.id, 1, Err("bad".to_owned()), LATER)
            .await;
        assert!(failed.expect("it works"));
        let canceled = store.cancel_job(JobId(3), LATER).await.expect("it works");
        assert_eq!(canceled.expect("it is there").state, JobState::Canceled);
        assert_eq!(store.claim_job(LATER).await.expect("it works"), None);
        let late = store.cancel_job(first.id, LATER).await.expect("it works");
        let late = late.expect("it is there");
        assert_eq!((late.state, late.percentage), (JobState::Success, 100));
        assert_eq!(late.metrics.as_deref(), Some("{}"));
        assert_eq!(
            store.cancel_job(JobId(9), LATER).await.expect("it works"),
            None
        );
        let jobs = store.jobs(ONE, None, None, 2).await.expect("it works");
        let told: Vec<_> = jobs.iter().map(|job| (job.id.0, job.state)).collect();
        assert_eq!(told, [(3, JobState::Canceled), (2, JobState::Failed)]);
        assert_eq!(jobs[1].error.as_deref(), Some("bad"));
        assert_eq!(store.jobs(TWO, None, None, 9).await.expect("it works"), []);
        let older = store.jobs(ONE, None, Some(JobId(3)), 1).await;
        let older = older.expect("it works");
        assert_eq!((older.len(), older[0].id), (1, JobId(2)));
        let oldest = store.jobs(ONE, None, Some(JobId(1)), 9).await;
        assert_eq!(oldest.expect("it works"), []);
        let of_first = store.jobs(ONE, Some(1), None, 9).await.expect("it works");
        assert_eq!(of_first.len(), 1);
        let fourth = store
            .create_job(new_job(1, data), NOW)
            .await
            .expect("it works");
        assert!(
            matches!(fourth, JobCreation::Done(_)),
            "the service is free again"
        );
    });
}

#[test]
fn what_ran_when_the_server_ended_runs_again_so_often() {
    of_every_store(async |store| {
        let data = stored(&*store, ONE, "a", NOW).await.id;
        let first = begun(&*store, 1, data).await;
        store.put_back(first.id, 1).await.expect("it works");
        for attempt in 1..=3 {
            let again = claimed(&*store, NOW).await;
            assert_eq!(
                (again.id, again.attempt, again.percentage),
                (first.id, attempt, 0)
            );
            assert!(
                store
                    .progress(first.id, attempt, 60)
                    .await
                    .expect("it works")
            );
            assert_eq!(store.recover_jobs(3, LATER).await.expect("it works"), 1);
        }
        assert_eq!(store.claim_job(NOW).await.expect("it works"), None);
        let failed = store
            .job(first.id)
            .await
            .expect("it works")
            .expect("it is there");
        assert_eq!(
            (failed.state, failed.ended_at),
            (JobState::Failed, Some(LATER))
        );
        let error = failed.error.expect("it says why");
        assert!(error.contains("3 times"), "{error}");
        assert_eq!(store.recover_jobs(3, LATER).await.expect("it works"), 0);
        let canceled = begun(&*store, 1, data).await;
        store
            .cancel_job(canceled.id, LATER)
            .await
            .expect("it works");
        assert_eq!(store.recover_jobs(3, LATER).await.expect("it works"), 0);
        assert!(!store.progress(canceled.id, 1, 50).await.expect("it works"));
    });
}
