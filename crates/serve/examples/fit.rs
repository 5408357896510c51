//! `fit FILE ROWS WIDTH LABELS TIMES` fits the classifier to the vectors in a file, and prints the time in
//! seconds, the loss and the number of right rows.
//!
//! The file has ROWS × WIDTH little-endian binary32, then ROWS little-endian u32, the labels.

#![expect(clippy::print_stdout, reason = "a benchmark reads the result")]

use std::time::Instant;

use pkgtool_serve::train::FitOptions;
use pkgtool_serve::train::classifier::{Examples, fit};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |place: usize| arguments[place].parse::<usize>().expect("a number");
    let (rows, width, count, times) = (number(2), number(3), number(4), number(5));
    let bytes = std::fs::read(&arguments[1]).expect("the file");
    let (vectors, labels) = bytes.split_at(rows * width * 4);
    let vectors: Vec<f32> = vectors
        .chunks_exact(4)
        .map(|it| f32::from_le_bytes(it.try_into().expect("four bytes")))
        .collect();
    let labels: Vec<u32> = labels
        .chunks_exact(4)
        .map(|it| u32::from_le_bytes(it.try_into().expect("four bytes")))
        .collect();
    let examples = Examples {
        vectors: &vectors,
        width,
        labels: &labels,
        count,
    };
    let options = FitOptions {
        max_iterations: 200,
        tolerance: 1e-4,
        seed: 0,
        ..FitOptions::default()
    };
    for _ in 0..times {
        let began = Instant::now();
        let fitted = fit(examples, vec![1.0; rows], 1.0, &options, &|_| true).expect("it is found");
        let seconds = began.elapsed().as_secs_f64();
        let taken = fitted.classifier.predict(&vectors);
        let right = taken.iter().zip(&labels).filter(|(a, b)| a == b).count();
        println!("{seconds} {} {right}", fitted.loss);
    }
}
