//! A replica that applies something else than the others: it stops, and they go on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plinth_engine::Failure;
use plinth_journal::record::{Body, OperationRecord, ProposalRecord, Record};
use plinth_journal::simulated::{SimulatedClient, SimulatedJournal};
use plinth_journal::{Entry, Journal, Position, Reader, Result};
use plinth_server::cli::{runtime, start_on, Running};

use super::replicas::{connect, create, get, join_at, options, replicas, serve, MAPS};

/// A journal whose reader sees other values in one record: a machine that computes wrongly.
struct Altering {
    journal: SimulatedClient,
    is_due: Arc<AtomicBool>,
}

struct AlteringReader {
    reader: Box<dyn Reader>,
    is_due: Arc<AtomicBool>,
}

impl Journal for Altering {
    fn append(&self, record: Bytes) -> Result<Position> {
        self.journal.append(record)
    }

    fn read(&self, from: Position) -> Result<Box<dyn Reader>> {
        let (reader, is_due) = (self.journal.read(from)?, self.is_due.clone());
        Ok(Box::new(AlteringReader { reader, is_due }))
    }

    fn end(&self) -> Result<Position> {
        self.journal.end()
    }

    fn trim(&self, before: Position) -> Result<()> {
        self.journal.trim(before)
    }

    fn given_up(&self) -> u64 {
        self.journal.given_up()
    }

    fn max_record_bytes(&self) -> usize {
        self.journal.max_record_bytes()
    }
}

impl Reader for AlteringReader {
    fn next(&mut self, timeout: Duration) -> Result<Option<Entry>> {
        let entry = self.reader.next(timeout)?;
        Ok(entry.map(|entry| match self.is_due.load(Ordering::SeqCst) {
            true => self.altered(entry),
            false => entry,
        }))
    }
}

impl AlteringReader {
    /// The entry with other data of the ConfigMap `altered`, once.
    fn altered(&self, entry: Entry) -> Entry {
        let Ok(mut record) = Record::decode(entry.bytes.clone()) else { return entry };
        let Body::Group(proposals) = &mut record.body else { return entry };
        let mut is_found = false;
        for proposal in proposals {
            let ProposalRecord::Transaction(transaction) = proposal else { continue };
            for operation in &mut transaction.operations {
                let OperationRecord::Put { key, value, .. } = operation else { continue };
                if key.ends_with(b"/altered") {
                    let text = value.iter().rposition(|byte| *byte == b'0').expect("its data");
                    let mut other = value.to_vec();
                    other[text] = b'9';
                    *value = other.into();
                    is_found = true;
                }
            }
        }
        if !is_found {
            return entry;
        }
        self.is_due.store(false, Ordering::SeqCst);
        Entry { bytes: record.encode(), ..entry }
    }
}

#[test]
fn the_replica_that_differs_stops_and_the_others_serve() {
    let dir = tempfile::tempdir().unwrap();
    runtime().unwrap().block_on(async {
        let journal = SimulatedJournal::new(40);
        let [first, second]: [Running; 2] = replicas(dir.path(), &journal).await;
        let path = dir.path().join("3");
        join_at(&first, path.clone()).await;
        let is_due = Arc::new(AtomicBool::new(false));
        let altering = Arc::new(Altering { journal: journal.client(3), is_due: is_due.clone() });
        let third = start_on(options(&path, &[]), Some(Box::new(move |_, _| Ok(altering)))).await.unwrap();
        let mut clients = [connect(&first).await, connect(&second).await];
        let mut wrong = connect(&third).await;
        assert_eq!(create(&mut wrong, "before").await.status, 201);
        is_due.store(true, Ordering::SeqCst);
        assert_eq!(create(&mut clients[0], "altered").await.status, 201);
        // Each replica writes a list of what it is every five seconds: nobody else has to do anything.
        let failure = tokio::time::timeout(Duration::from_secs(60), third.failed()).await.expect("it stops");
        assert!(matches!(failure, Failure::Diverged { .. }), "{failure}");
        for (n, client) in clients.iter_mut().enumerate() {
            assert_eq!(create(client, &format!("after-{n}")).await.status, 201);
        }
        for client in &mut clients {
            for name in ["before", "altered", "after-0", "after-1"] {
                let found = get(client, &format!("{MAPS}/{name}")).await;
                assert_eq!(found.status, 200, "{name}");
                assert!(found.text().contains(r#""n":"0""#), "{}", found.text());
            }
        }
        drop(third.stop().await);
        // Made again from another one, it is right.
        std::fs::remove_dir_all(&path).unwrap();
        join_at(&second, path.clone()).await;
        let third = serve(&path, &journal, 4).await;
        assert_eq!(create(&mut connect(&third).await, "again").await.status, 201);
        assert_eq!(get(&mut clients[0], &format!("{MAPS}/again")).await.status, 200);
        for server in [first, second, third] {
            server.stop().await.unwrap();
        }
    });
}
