//! A wire that is cut at random moments: each command succeeds or says so, and nothing stays behind.

use std::fs;
use std::time::{Duration, Instant};

use super::{PACKAGE, TestDevice, output_of};
use crate::support::environment::say;
use crate::support::random::{Random, seed};

/// Number of cuts. CI makes all that the issue of devices asks for.
const CUTS: usize = 50;

/// Gives a shell behind a wire that ends after so many bytes. Its arguments: a file with the numbers of bytes, the first
/// of which it takes away; without one the wire stays.
const CUTTER: &str = r"
import fcntl, os, select, signal, subprocess, sys
with open(sys.argv[1], 'r+') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    numbers = file.read().split()
    file.seek(0); file.truncate(); file.write(' '.join(numbers[1:]))
left = int(numbers[0]) if numbers else 1 << 60
shell = subprocess.Popen(['sh'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
ways = {0: shell.stdin.fileno(), shell.stdout.fileno(): 1}
while ways and left > 0:
    for source in select.select(list(ways), [], [])[0]:
        data = os.read(source, min(65536, left))
        if data:
            left -= len(data)
            try:
                os.write(ways[source], data)
            except OSError:
                left = 0
        else:
            target = ways.pop(source)
            os.close(target)
            if source != 0:
                ways.clear()
sys.exit(0)
";

#[test]
fn a_cut_wire_is_resumed_or_reported() {
    let device = TestDevice::shell();
    let run = [
        "run", PACKAGE, "--input", "random:3", "--engine", "tract", "--json",
    ];
    let expected = output_of(&device.run(&run).expect_code(0));
    let cutter = device.directory.path().join("cutter.py");
    fs::write(&cutter, CUTTER).expect("a file");
    let mut random = Random::new(seed("a_cut_wire_is_resumed_or_reported"));
    let (mut resumed, mut reported) = (0, 0);
    for cut in 0..CUTS {
        let numbers = device.directory.path().join("numbers");
        // A connection carries about so many bytes, most of them the model and its answer.
        let many = 1 + random.below(4);
        let offsets: Vec<String> = (0..many)
            .map(|_| random.below(200_000).to_string())
            .collect();
        fs::write(&numbers, offsets.join(" ")).expect("a file");
        if random.below(2) == 0 {
            // The model is sent again.
            let _ = fs::remove_dir_all(device.place().join("files"));
        }
        let on = format!(
            "exec:exec python3 {} {}",
            cutter.display(),
            numbers.display()
        );
        let since = Instant::now();
        let ran = device.command(&run).variable("PKGTOOL_ON", &on).run();
        assert!(
            since.elapsed() < Duration::from_mins(1),
            "cut {cut} at {offsets:?} takes too long"
        );
        match ran.code {
            0 => {
                assert_eq!(output_of(&ran), expected, "cut {cut} at {offsets:?}");
                resumed += 1;
            }
            2 => {
                assert!(
                    ran.stderr.contains("exec:exec python3"),
                    "cut {cut} at {offsets:?}: {}",
                    ran.stderr
                );
                reported += 1;
            }
            other => panic!("cut {cut} at {offsets:?}: code {other}: {}", ran.stderr),
        }
    }
    say(&format!("{resumed} resumed, {reported} reported"));
    device.expect_no_process();
    let left = device.run(&run).expect_code(0);
    assert_eq!(output_of(&left), expected);
}
