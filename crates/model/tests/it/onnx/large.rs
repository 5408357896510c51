//! Large ONNX files: the reader skips the data of weights without reading it.

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};

use pkgtool_base::source::FileSource;
use pkgtool_model as model;

use crate::counted::Counted;
use pkgtool_testing::onnx::{head, int, part, typed, value};

/// Writes a model around `hole` bytes of raw data, without writing the hole itself.
fn write(file: &mut File, hole: u64) -> io::Result<()> {
    let name = part(8, &[b"w"]);
    let raw_data = head(9, hole);
    let about = [int(1, hole / 4), int(2, 1), name].concat();
    let tensor = about.len() as u64 + raw_data.len() as u64 + hole;
    let initializer = [head(5, tensor), about, raw_data].concat();
    let node = part(
        1,
        &[
            &part(1, &[b"x"]),
            &part(1, &[b"w"]),
            &part(2, &[b"y"]),
            &part(4, &[b"MatMul"]),
        ],
    );
    let after = [typed(11, "x"), typed(11, "w"), value(12, "y")].concat();
    let graph = (node.len() + initializer.len() + after.len()) as u64 + hole;
    for bytes in [int(1, 10), head(7, graph), node, initializer] {
        file.write_all(&bytes)?;
    }
    file.seek(SeekFrom::Current(
        i64::try_from(hole).expect("the number fits"),
    ))?;
    file.write_all(&after)?;
    file.write_all(&part(8, &[&int(2, 21)]))
}

#[test]
fn weights_are_not_read() {
    for hole in [1_500_000_000, 5_000_000_000] {
        let mut file = tempfile::Builder::new()
            .suffix(".onnx")
            .tempfile()
            .expect("a temporary file");
        write(file.as_file_mut(), hole).expect("room for a sparse file");
        let source = FileSource::open(file.path()).expect("just written");
        let counted = Counted::new(&source);
        let info = model::inspect(file.path(), &counted)
            .expect("a sound model")
            .expect("claimed by its extension");
        assert_eq!(info.format_version, "IR 10, opset 21");
        assert_eq!(info.weight_bytes, hole);
        assert_eq!(info.methods[0].inputs.len(), 1);
        assert_eq!(info.methods[0].outputs[0].name.as_deref(), Some("y"));
        assert_eq!(info.methods[0].operators["MatMul"], 1);
        assert!(counted.read() < 20_000, "{} bytes", counted.read());
    }
}
