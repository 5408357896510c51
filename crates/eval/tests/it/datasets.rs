//! Layouts of data sets, and what is wrong with others.

use std::fs;
use std::path::Path;

use pkgtool_eval::{EvalDataset, EvalTask, ItemTruth};
use pkgtool_media::MediaKind;
use tempfile::TempDir;

/// Makes files of these names and contents.
fn files(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, content) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a directory");
        fs::write(path, content).expect("written");
    }
    directory
}

/// Returns the items with their truths as text, or the error without the directory.
fn read(root: &Path, task: EvalTask, takes: MediaKind) -> Result<Vec<String>, String> {
    let dataset = EvalDataset::open(root, task, takes);
    let dataset = dataset.map_err(|error| error.to_string())?;
    let items = dataset.items.iter().map(|item| {
        let truth = match &item.truth {
            ItemTruth::Class(class) => class.clone(),
            ItemTruth::Text(text) => text.clone(),
            ItemTruth::Classes(file) => file
                .file_name()
                .expect("a name")
                .to_string_lossy()
                .into_owned(),
            ItemTruth::Objects { objects, .. } => format!("{} objects", objects.len()),
            ItemTruth::Similarity { texts, score } => {
                format!("{} | {} | {score}", texts[0], texts[1])
            }
        };
        format!("{}: {truth}", item.name.replace('\\', "/"))
    });
    Ok(items.collect())
}

#[test]
fn layouts_are_found() {
    use EvalTask::{Classification, Reading, Segmentation, Similarity, Transcription};
    use MediaKind::{Picture, Sound, Text};
    type Case<'c> = (EvalTask, MediaKind, &'c [(&'c str, &'c str)], &'c [&'c str]);
    let cases: &[Case<'_>] = &[
        (
            Classification,
            Picture,
            &[
                ("dog/b.jpg", ""),
                ("cat/x/a.png", ""),
                ("cat/.hidden.png", ""),
                ("notes.md", ""),
            ],
            &["cat/x/a.png: cat", "dog/b.jpg: dog"],
        ),
        (
            Classification,
            Picture,
            &[
                ("images/a.png", ""),
                ("labels.csv", "Image,Label\na.png,3\n"),
            ],
            &["a.png: 3"],
        ),
        (
            Classification,
            Picture,
            &[
                ("a.png", ""),
                (
                    "metadata.jsonl",
                    "{\"file_name\": \"a.png\", \"label\": 3}\n\n",
                ),
            ],
            &["a.png: 3"],
        ),
        (
            Segmentation,
            Picture,
            &[
                ("JPEGImages/a.jpg", ""),
                ("JPEGImages/b.jpg", ""),
                ("SegmentationClass/b.png", ""),
            ],
            &["JPEGImages/b.jpg: b.png"],
        ),
        (
            Transcription,
            Sound,
            &[
                ("a/1.flac", ""),
                ("a/2.flac", ""),
                ("a/a.trans.txt", "1 HELLO YOU\n2 NO\n"),
            ],
            &["a/1.flac: HELLO YOU", "a/2.flac: NO"],
        ),
        (
            Transcription,
            Sound,
            &[
                ("clips/1.mp3", ""),
                (
                    "test.tsv",
                    "client\tpath\tsentence\nx\t1.mp3\tSo \"it\" is.\n",
                ),
            ],
            &["1.mp3: So \"it\" is."],
        ),
        (
            Reading,
            Picture,
            &[("1.png", ""), ("rec_gt.txt", "1.png\tA text\n")],
            &["1.png: A text"],
        ),
        (
            Similarity,
            Text,
            &[("pairs.tsv", "a cat\ta dog\t0.5\nx\ty\t1\n")],
            &["row 1: a cat | a dog | 0.5", "row 2: x | y | 1"],
        ),
    ];
    for (task, takes, made, expected) in cases {
        let directory = files(made);
        let items = read(directory.path(), *task, *takes);
        let expected = expected.iter().map(|item| (*item).to_owned()).collect();
        assert_eq!(items, Ok(expected), "{made:?}");
    }
}

#[test]
fn faults_name_the_place() {
    use EvalTask::{Classification, Detection, Segmentation, Similarity, Transcription};
    use MediaKind::{Picture, Sound, Text};
    type Case<'c> = (EvalTask, MediaKind, &'c [(&'c str, &'c str)], &'c str);
    let cases: &[Case<'_>] = &[
        (
            Classification,
            Picture,
            &[("a.png", "")],
            "expected a folder of pictures for each class",
        ),
        (
            Classification,
            Picture,
            &[("labels.csv", "file,label\nb.png,1\n")],
            "row 1: no file",
        ),
        (
            Classification,
            Picture,
            &[("labels.csv", "x,y\nb.png,1\n")],
            "the columns are x, y: expected one of",
        ),
        (
            Classification,
            Picture,
            &[("x.jsonl", "{\"file\": 1}\n[]\n")],
            "line 2:",
        ),
        (
            Detection,
            Picture,
            &[("a.png", "")],
            "no JSON file with annotations of COCO",
        ),
        (
            Detection,
            Picture,
            &[("a.json", "{}"), ("b.json", "{}")],
            "several files may have the annotations",
        ),
        (
            Detection,
            Picture,
            &[("a.json", "{}")],
            "missing field `images`",
        ),
        (
            Segmentation,
            Picture,
            &[("images/a.png", ""), ("masks/b.png", "")],
            "no picture b in",
        ),
        (
            Transcription,
            Sound,
            &[("a.wav", ""), ("b.wav", ""), ("a.txt", "x")],
            "b.wav: no words: expected b.txt",
        ),
        (
            Similarity,
            Text,
            &[("a.csv", "a,b,score\nx,y,much\n")],
            "row 1: the score \"much\" is not a number",
        ),
        (
            Similarity,
            Text,
            &[("a.csv", "a,b,score\n")],
            "the data set has no item",
        ),
    ];
    for (task, takes, made, expected) in cases {
        let directory = files(made);
        let error = read(directory.path(), *task, *takes).expect_err("a fault");
        assert!(error.contains(expected), "{error}\n{expected}");
    }
    let missing = read(Path::new("nowhere"), Classification, Picture);
    assert_eq!(
        missing,
        Err("nowhere: no such file or directory".to_owned())
    );
}

#[test]
fn faults_of_annotations_name_the_object() {
    let coco = |annotation: &str| {
        format!(
            "{{\"images\": [{{\"id\": 1, \"file_name\": \"a.png\", \"width\": 4, \"height\": 4}}], \
             \"categories\": [{{\"id\": 1, \"name\": \"cat\"}}], \"annotations\": [{annotation}]}}"
        )
    };
    let object = |rest: &str| {
        coco(&format!(
            "{{\"image_id\": 1, \"category_id\": 1, \"bbox\": [0, 0, 1, 1], \"segmentation\": {rest}}}"
        ))
    };
    for (text, expected) in [
        (coco(""), "the picture a.png is in none of"),
        (
            coco("{\"image_id\": 2, \"category_id\": 1, \"bbox\": [0, 0, 1, 1]}"),
            "annotations[0]: no picture has the id 2",
        ),
        (
            coco("{\"image_id\": 1, \"category_id\": 9, \"bbox\": [0, 0, 1, 1]}"),
            "annotations[0]: no category has the id 9",
        ),
        (
            object("[[1, 2, 3]]"),
            "annotations[0]: a polygon has 3 numbers",
        ),
        (
            object("[[0, 0, 1e9, 0, 1, 1]]"),
            "annotations[0]: a polygon has a corner far outside",
        ),
        (
            object("{\"counts\": [9, 9], \"size\": [4, 4]}"),
            "annotations[0]: the runs of a mask exceed 16 pixels",
        ),
        (
            object("{\"counts\": [16], \"size\": [2, 8]}"),
            "annotations[0]: a mask of 8 x 2 pixels in a picture of 4 x 4",
        ),
    ] {
        let directory = files(&[("a.json", &text)]);
        let error = read(directory.path(), EvalTask::Detection, MediaKind::Picture);
        let error = error.expect_err("a fault");
        assert!(error.contains(expected), "{error}\n{expected}");
    }
}

#[test]
fn a_limit_spreads_items_evenly() {
    let rows: Vec<String> = (0..10).map(|row| format!("a\tb\t{row}\n")).collect();
    let rows = rows.concat();
    let directory = files(&[("pairs.tsv", &rows)]);
    for (most, expected) in [
        (3, vec![3, 6, 9]),
        (10, (0..10).collect()),
        (99, (0..10).collect()),
    ] {
        let dataset = EvalDataset::open(directory.path(), EvalTask::Similarity, MediaKind::Text);
        let mut dataset = dataset.expect("valid");
        dataset.limit(most);
        let kept = dataset.items.iter().map(|item| match &item.truth {
            ItemTruth::Similarity { score, .. } => format!("{score}"),
            other => panic!("{other:?}"),
        });
        let expected: Vec<String> = expected.iter().map(ToString::to_string).collect();
        assert_eq!(kept.collect::<Vec<_>>(), expected, "{most}");
    }
}
