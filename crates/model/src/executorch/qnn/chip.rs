//! Display names of the chips and backends that QNN context binaries are compiled for.
//!
//! Chip names come from `QcomChipset` in ExecuTorch's
//! `backends/qualcomm/serialization/qc_compiler_spec.fbs`. `QNN_BACKEND_ID_HTP` is 6
//! (`QnnHtpCommon.h`).

/// Chip names by number.
const CHIPS: [(u32, &str); 21] = [
    (30, "SM8350"),
    (36, "SM8450"),
    (39, "SA8295"),
    (42, "SM8475"),
    (43, "SM8550"),
    (45, "SXR1230P"),
    (46, "SSG2115P"),
    (52, "SA8255"),
    (53, "SXR2230P"),
    (57, "SM8650"),
    (58, "SSG2125P"),
    (60, "SC8380XP"),
    (69, "SM8750"),
    (72, "SA8797"),
    (75, "SXR2330P"),
    (77, "QCS9100"),
    (87, "SM8850"),
    (93, "QCM6490"),
    (95, "SAR2230P"),
    (96, "SW6100"),
    (97, "SM8845"),
];

/// Formats a chip as `SM8650 (57)`, or as its number if it is unknown.
pub(super) fn format_chip(model: u32) -> String {
    let known = CHIPS.iter().find(|(number, _)| *number == model);
    match known {
        Some((_, name)) => format!("{name} ({model})"),
        None => model.to_string(),
    }
}

/// Formats a QNN backend as `HTP`, or as its number.
pub(super) fn backend(id: u32) -> String {
    match id {
        6 => "HTP".to_owned(),
        _ => format!("number {id}"),
    }
}
