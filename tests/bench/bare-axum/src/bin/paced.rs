//! Sends HTTP requests at a fixed rate and prints how long the answers took, as one line of JSON.
//!
//! `paced HOST:PORT METHOD RATE SECONDS CONNECTIONS HEADERS BODY PATHS`: the last three are files; of the
//! paths, one a line, each request takes the next one. A request's time begins when it was due, not
//! when a connection was free for it: a server that stalls is charged for all that had to wait. The
//! threads sleep until requests are due, and may be late by themselves; `late_p99_us` says how late
//! requests were sent whose connection was free.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

struct Plan {
    address: String,
    method: String,
    interval: Duration,
    count: usize,
    connections: usize,
    headers: String,
    body: Vec<u8>,
    paths: Vec<String>,
}

#[derive(Default)]
struct Seen {
    micros: Vec<u64>,
    late: Vec<u64>,
    statuses: BTreeMap<u16, usize>,
}

fn main() {
    let plan = Arc::new(plan());
    // Threads are there and connected when the first request is due.
    let start = Instant::now() + Duration::from_millis(500);
    let workers: Vec<_> = (0..plan.connections)
        .map(|number| {
            let plan = Arc::clone(&plan);
            std::thread::spawn(move || work(&plan, number, start))
        })
        .collect();
    let mut all = Seen::default();
    for worker in workers {
        let seen = worker.join().expect("a worker does not panic");
        let seen = seen.unwrap_or_else(|error| fail(&format!("a request failed: {error}")));
        all.micros.extend(seen.micros);
        all.late.extend(seen.late);
        for (status, count) in seen.statuses {
            *all.statuses.entry(status).or_default() += count;
        }
    }
    let took = start.elapsed().as_secs_f64();
    all.micros.sort_unstable();
    all.late.sort_unstable();
    let statuses: Vec<String> = all
        .statuses
        .iter()
        .map(|(status, count)| format!("\"{status}\": {count}"))
        .collect();
    println!(
        "{{\"requests\": {}, \"per_second\": {}, \"p50_us\": {}, \"p99_us\": {}, \"max_us\": {}, \
         \"late_p99_us\": {}, \"statuses\": {{{}}}}}",
        all.micros.len(),
        all.micros.len() as f64 / took,
        percentile(&all.micros, 50),
        percentile(&all.micros, 99),
        percentile(&all.micros, 100),
        percentile(&all.late, 99),
        statuses.join(", "),
    );
}

fn plan() -> Plan {
    let arguments: Vec<String> = std::env::args().collect();
    let [
        _,
        address,
        method,
        rate,
        seconds,
        connections,
        headers,
        body,
        paths,
    ] = &arguments[..]
    else {
        fail("paced HOST:PORT METHOD RATE SECONDS CONNECTIONS HEADERS BODY PATHS");
    };
    let number = |text: &String| -> f64 {
        let value = text.parse().ok().filter(|value: &f64| *value > 0.0);
        value.unwrap_or_else(|| fail(&format!("{text} is no number greater than 0")))
    };
    let read = |path: &String| {
        std::fs::read_to_string(path).unwrap_or_else(|error| fail(&format!("{path}: {error}")))
    };
    let rate = number(rate);
    let paths: Vec<String> = read(paths).lines().map(str::to_owned).collect();
    if paths.is_empty() {
        fail("there are no paths");
    }
    Plan {
        address: address.clone(),
        method: method.clone(),
        interval: Duration::from_secs_f64(1.0 / rate),
        count: (number(seconds) * rate) as usize,
        connections: number(connections) as usize,
        headers: read(headers)
            .lines()
            .map(|line| format!("{}\r\n", line.trim_end()))
            .collect(),
        body: read(body).into_bytes(),
        paths,
    }
}

/// Every so-many-th request, on one connection.
fn work(plan: &Plan, number: usize, start: Instant) -> io::Result<Seen> {
    let mut stream = TcpStream::connect(&plan.address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut seen = Seen::default();
    let mut buffer = Vec::new();
    for turn in (number..plan.count).step_by(plan.connections) {
        let due = start + plan.interval * u32::try_from(turn).expect("no run is so long");
        let path = &plan.paths[turn % plan.paths.len()];
        let mut request = format!(
            "{} {path} HTTP/1.1\r\nhost: {}\r\n{}content-length: {}\r\n\r\n",
            plan.method,
            plan.address,
            plan.headers,
            plan.body.len()
        )
        .into_bytes();
        request.extend_from_slice(&plan.body);
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
            seen.late.push(micros(due.elapsed()));
        }
        let sent = Instant::now();
        let told = |error: io::Error| {
            let (after, answers) = (micros(sent.elapsed()), seen.micros.len());
            let words = format!("{error}, {after} us after it was sent, after {answers} answers");
            io::Error::new(error.kind(), words)
        };
        stream.write_all(&request).map_err(told)?;
        let status = answer(&mut stream, &mut buffer).map_err(told)?;
        seen.micros.push(micros(due.elapsed()));
        *seen.statuses.entry(status).or_default() += 1;
    }
    Ok(seen)
}

/// Reads one whole answer, which says its length; gives its status.
fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<u16> {
    buffer.clear();
    let mut chunk = [0; 16 << 10];
    let wrong = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    loop {
        let read = stream.read(&mut chunk)?;
        if read == 0 {
            return Err(wrong("the server closed the connection"));
        }
        buffer.extend_from_slice(&chunk[..read]);
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
        let status: u16 = status.ok_or_else(|| wrong("the answer has no status"))?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length:"))
            .and_then(|text| text.trim().parse().ok());
        let length: usize = match length {
            Some(length) => length,
            None if status == 204 => 0,
            None => return Err(wrong("the answer does not say its length")),
        };
        if buffer.len() >= end + 4 + length {
            return Ok(status);
        }
    }
}

/// The value that this percentage of all does not exceed.
fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let place = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(place).copied().unwrap_or(0)
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn fail(words: &str) -> ! {
    eprintln!("paced: {words}");
    std::process::exit(1);
}
