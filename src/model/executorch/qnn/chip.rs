//! Names of what context binaries were compiled for.
//!
//! Chips are `QcomChipset` of ExecuTorch's `backends/qualcomm/serialization/qc_compiler_spec.fbs`, where those of
//! Qualcomm's processors that are known by name stand; `QNN_BACKEND_ID_HTP` is 6 (`QnnHtpCommon.h`).

/// Chips by their numbers.
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

/// A chip: `SM8650 (57)`, or its number alone.
pub(super) fn chip(model: u32) -> String {
    let known = CHIPS.iter().find(|(number, _)| *number == model);
    match known {
        Some((_, name)) => format!("{name} ({model})"),
        None => model.to_string(),
    }
}

/// A backend of QNN: `HTP`, or its number.
pub(super) fn backend(id: u32) -> String {
    match id {
        6 => "HTP".to_owned(),
        _ => format!("number {id}"),
    }
}
