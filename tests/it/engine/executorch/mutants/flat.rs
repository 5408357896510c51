//! Mutations of single fields in the FlatBuffer of an ExecuTorch program.

/// A deterministic pseudo-random number generator.
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    pub(super) fn below(&mut self, end: usize) -> Option<usize> {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let number = usize::try_from(self.0 >> 33).expect("31 bits");
        number.checked_rem(end)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        Some(from[self.below(from.len())?])
    }
}

/// The bytes of a program whose FlatBuffer begins at offset 0.
pub(super) struct Flat {
    pub(super) bytes: Vec<u8>,
}

/// A vector: the offset of its first element and its length.
#[derive(Clone, Copy)]
struct Items {
    first: usize,
    count: usize,
}

impl Items {
    fn at(self, index: usize, size: usize) -> usize {
        self.first + index * size
    }
}

/// Mutates a program; returns `None` if the program lacks the mutated field.
type Change = fn(&mut Flat, &mut Numbers) -> Option<()>;

/// All changes.
pub(super) const CHANGES: &[(&str, Change)] = &[
    ("operator_name", |flat, numbers| {
        flat.letter_of_operator(0, numbers)
    }),
    ("overload", |flat, numbers| {
        flat.letter_of_operator(1, numbers)
    }),
    ("other_overload", |flat, numbers| {
        let operators = flat.list(flat.plan()?, 6)?;
        let [one, other] = [0; 2].map(|_| numbers.below(operators.count));
        let (one, other) = (flat.row(operators, one?), flat.row(operators, other?));
        flat.point(flat.field(one, 1)?, flat.table(other, 1)?)
    }),
    ("operator_of_call", |flat, numbers| {
        flat.number_of_call(1, 0, numbers)
    }),
    ("argument", |flat, numbers| flat.argument(1, numbers)),
    ("argument_beyond", |flat, numbers| {
        flat.argument_beyond(1, numbers)
    }),
    ("fewer_arguments", |flat, numbers| {
        flat.fewer_arguments(1, numbers)
    }),
    ("arguments_of_other_call", |flat, numbers| {
        let one = flat.call(1, numbers)?;
        let other = flat.call(1, numbers)?;
        flat.point(flat.field(one, 1)?, flat.table(other, 1)?)
    }),
    ("delegate_of_call", |flat, numbers| {
        flat.number_of_call(2, 0, numbers)
    }),
    ("argument_of_delegate", |flat, numbers| {
        flat.argument(2, numbers)
    }),
    ("argument_of_delegate_beyond", |flat, numbers| {
        flat.argument_beyond(2, numbers)
    }),
    ("fewer_arguments_of_delegate", |flat, numbers| {
        flat.fewer_arguments(2, numbers)
    }),
    ("delegate_id", |flat, numbers| {
        let delegates = flat.list(flat.plan()?, 7)?;
        let delegate = flat.row(delegates, numbers.below(delegates.count)?);
        flat.letter(flat.table(delegate, 0)?, 0, numbers)
    }),
    ("payload_of_delegate", |flat, numbers| {
        let delegates = flat.list(flat.plan()?, 7)?;
        let delegate = flat.row(delegates, numbers.below(delegates.count)?);
        let data = flat.table(delegate, 1)?;
        let at = flat.field(data, 1)?;
        flat.set(at, numbers.below(delegates.count + 2)?)
    }),
    ("move", |flat, numbers| flat.number_of_call(3, 0, numbers)),
    ("move_to", |flat, numbers| {
        flat.number_of_call(3, 1, numbers)
    }),
    ("condition", |flat, numbers| {
        flat.number_of_call(4, 0, numbers)
    }),
    ("jump", |flat, numbers| flat.number_of_call(4, 1, numbers)),
    ("freed", |flat, numbers| flat.number_of_call(5, 0, numbers)),
    ("kind_of_instruction", |flat, numbers| {
        let instructions = flat.instructions()?;
        let row = flat.row(instructions, numbers.below(instructions.count)?);
        let at = flat.field(row, 0)?;
        flat.bytes[at] = u8::try_from(numbers.below(7)?).ok()?;
        Some(())
    }),
    ("instruction_twice", |flat, numbers| {
        let instructions = flat.instructions()?;
        let [one, other] = [0; 2].map(|_| numbers.below(instructions.count));
        flat.point(instructions.at(one?, 4), flat.row(instructions, other?))
    }),
    ("fewer_instructions", |flat, _| {
        let instructions = flat.instructions()?;
        flat.set(instructions.first - 4, instructions.count.checked_sub(1)?)
    }),
    ("no_chains", |flat, _| {
        let chains = flat.list(flat.plan()?, 5)?;
        flat.set(chains.first - 4, 0)
    }),
    ("kind_of_value", |flat, numbers| {
        let values = flat.values()?;
        let row = flat.row(values, numbers.below(values.count)?);
        let at = flat.field(row, 0)?;
        flat.bytes[at] = u8::try_from(numbers.below(13)?).ok()?;
        Some(())
    }),
    ("other_value", |flat, numbers| {
        let values = flat.values()?;
        let [one, other] = [0; 2].map(|_| numbers.below(values.count));
        flat.point(values.at(one?, 4), flat.row(values, other?))
    }),
    ("fewer_values", |flat, _| {
        let values = flat.values()?;
        flat.set(values.first - 4, values.count.checked_sub(1)?)
    }),
    ("item_of_ints", |flat, numbers| flat.item(7, 8, numbers)),
    ("item_of_tensors", |flat, numbers| flat.item(10, 4, numbers)),
    ("item_of_optional_tensors", |flat, numbers| {
        flat.item(11, 4, numbers)
    }),
    ("input", |flat, numbers| flat.port(3, numbers)),
    ("output", |flat, numbers| flat.port(4, numbers)),
    ("element_type", |flat, numbers| {
        let at = flat.field(flat.value(5, numbers)?, 0)?;
        flat.bytes[at] = numbers.pick(&[0, 1, 4, 6, 7, 8, 11, 15, 40, 255])?;
        Some(())
    }),
    ("size", |flat, numbers| {
        let sizes = flat.list(flat.value(5, numbers)?, 2)?;
        let at = sizes.at(numbers.below(sizes.count)?, 4);
        let size = numbers.pick(&[0, 1, 3, 100, usize::MAX])?;
        flat.set(at, size)
    }),
    ("dimension_order", |flat, numbers| {
        let order = flat.list(flat.value(5, numbers)?, 3)?;
        let at = order.at(numbers.below(order.count)?, 1);
        flat.bytes[at] = numbers.pick(&[0, 1, 2, 9])?;
        Some(())
    }),
    ("rank", |flat, numbers| {
        let sizes = flat.list(flat.value(5, numbers)?, 2)?;
        flat.set(sizes.first - 4, sizes.count.checked_sub(1)?)
    }),
    ("data", |flat, numbers| {
        let at = flat.field(flat.value(5, numbers)?, 5)?;
        flat.set(at, numbers.below(9)?)
    }),
    ("memory", |flat, numbers| {
        let place = flat.table(flat.value(5, numbers)?, 6)?;
        let at = flat.field(place, 0)?;
        flat.set(at, numbers.below(4)?)
    }),
    ("place_in_memory", |flat, numbers| {
        let place = flat.table(flat.value(5, numbers)?, 6)?;
        let at = flat.field(place, 1)?;
        flat.set(at, numbers.pick(&[0, 16, 1 << 20, usize::MAX])?)
    }),
    ("memory_size", |flat, numbers| {
        let sizes = flat.list(flat.plan()?, 8)?;
        let at = sizes.at(numbers.below(sizes.count)?, 8);
        flat.set(at, numbers.pick(&[0, 4, 1 << 16])?)
    }),
    ("name_of_tensor", |flat, numbers| {
        let extra = flat.external(numbers)?;
        flat.letter(flat.table(extra, 1)?, 0, numbers)
    }),
    ("location_of_tensor", |flat, numbers| {
        let extra = flat.external(numbers)?;
        let at = flat.field(extra, 2)?;
        flat.bytes[at] = numbers.pick(&[0, 2])?;
        Some(())
    }),
    ("name_of_method", |flat, numbers| {
        flat.letter(flat.table(flat.plan()?, 0)?, 0, numbers)
    }),
];

impl Flat {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    fn u32(&self, at: usize) -> usize {
        let bytes = self.bytes[at..at + 4].try_into().expect("4 bytes");
        usize::try_from(u32::from_le_bytes(bytes)).expect("32 bits")
    }

    fn set(&mut self, at: usize, number: usize) -> Option<()> {
        let bytes = number.to_le_bytes();
        let place = self.bytes.get_mut(at..at + 4)?;
        place.copy_from_slice(&bytes[..4]);
        Some(())
    }

    /// Redirects the offset at `at` to `to`. Offsets point forward only.
    fn point(&mut self, at: usize, to: usize) -> Option<()> {
        self.set(at, to.checked_sub(at).filter(|distance| *distance > 0)?)
    }

    /// Returns the position of a table's field, if the field is present.
    fn field(&self, table: usize, slot: usize) -> Option<usize> {
        let back = i64::from(u32::try_from(self.u32(table)).ok()?.cast_signed());
        let vtable = usize::try_from(i64::try_from(table).ok()? - back).ok()?;
        let number =
            |at: usize| usize::from(u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]));
        let entry = 4 + 2 * slot;
        if entry >= number(vtable) {
            return None;
        }
        let offset = number(vtable + entry);
        (offset != 0).then(|| table + offset)
    }

    /// Returns the target of the offset in a field.
    fn table(&self, table: usize, slot: usize) -> Option<usize> {
        let at = self.field(table, slot)?;
        Some(at + self.u32(at))
    }

    fn list(&self, table: usize, slot: usize) -> Option<Items> {
        let at = self.table(table, slot)?;
        Some(Items {
            first: at + 4,
            count: self.u32(at),
        })
    }

    /// Returns a table of a vector of tables.
    fn row(&self, items: Items, index: usize) -> usize {
        let at = items.at(index, 4);
        at + self.u32(at)
    }

    /// Returns the first method.
    fn plan(&self) -> Option<usize> {
        let plans = self.list(self.u32(0), 1)?;
        Some(self.row(plans, 0))
    }

    fn values(&self) -> Option<Items> {
        self.list(self.plan()?, 2)
    }

    fn instructions(&self) -> Option<Items> {
        let chains = self.list(self.plan()?, 5)?;
        self.list(self.row(chains, 0), 2)
    }

    /// Returns a random value of this kind.
    fn value(&self, kind: u8, numbers: &mut Numbers) -> Option<usize> {
        let values = self.values()?;
        let found: Vec<usize> = (0..values.count)
            .map(|index| self.row(values, index))
            .filter(|row| self.field(*row, 0).is_some_and(|at| self.bytes[at] == kind))
            .collect();
        self.table(numbers.pick(&found)?, 1)
    }

    /// Returns a random instruction of this kind.
    fn call(&self, kind: u8, numbers: &mut Numbers) -> Option<usize> {
        let instructions = self.instructions()?;
        let found: Vec<usize> = (0..instructions.count)
            .map(|index| self.row(instructions, index))
            .filter(|row| self.field(*row, 0).is_some_and(|at| self.bytes[at] == kind))
            .collect();
        self.table(numbers.pick(&found)?, 1)
    }

    /// Returns the description of a random external tensor.
    fn external(&self, numbers: &mut Numbers) -> Option<usize> {
        let values = self.values()?;
        let found: Vec<usize> = (0..values.count)
            .filter_map(|index| self.table(self.row(values, index), 1))
            .filter_map(|value| self.table(value, 9))
            .filter(|extra| self.field(*extra, 2).is_some())
            .collect();
        numbers.pick(&found)
    }

    fn letter_of_operator(&mut self, slot: usize, numbers: &mut Numbers) -> Option<()> {
        let operators = self.list(self.plan()?, 6)?;
        let row = self.row(operators, numbers.below(operators.count)?);
        let text = self.table(row, slot)?;
        let bytes = &self.bytes[text + 4..text + 4 + self.u32(text)];
        let space = bytes.iter().rposition(|byte| *byte == b':');
        self.letter(text, space.map_or(0, |at| at + 1), numbers)
    }

    /// Changes a letter of the string at `text`, at or after its byte `start`.
    fn letter(&mut self, text: usize, start: usize, numbers: &mut Numbers) -> Option<()> {
        let length = self.u32(text).checked_sub(start)?;
        let at = text + 4 + start + numbers.below(length)?;
        self.bytes[at] = numbers.pick(b"qxZ_")?;
        Some(())
    }

    fn arguments(&self, kind: u8, numbers: &mut Numbers) -> Option<Items> {
        self.list(self.call(kind, numbers)?, 1)
    }

    fn argument(&mut self, kind: u8, numbers: &mut Numbers) -> Option<()> {
        let arguments = self.arguments(kind, numbers)?;
        let at = arguments.at(numbers.below(arguments.count)?, 4);
        self.set(at, numbers.below(self.values()?.count)?)
    }

    fn argument_beyond(&mut self, kind: u8, numbers: &mut Numbers) -> Option<()> {
        let arguments = self.arguments(kind, numbers)?;
        let at = arguments.at(numbers.below(arguments.count)?, 4);
        let beyond = [self.values()?.count, usize::MAX, 1 << 30];
        self.set(at, numbers.pick(&beyond)?)
    }

    fn fewer_arguments(&mut self, kind: u8, numbers: &mut Numbers) -> Option<()> {
        let arguments = self.arguments(kind, numbers)?;
        let fewer = numbers.below(arguments.count)?;
        self.set(arguments.first - 4, fewer)
    }

    /// Changes a number in an instruction of this kind.
    fn number_of_call(&mut self, kind: u8, slot: usize, numbers: &mut Numbers) -> Option<()> {
        let at = self.field(self.call(kind, numbers)?, slot)?;
        let number = numbers.below(self.values()?.count + 3)?;
        self.set(at, number)
    }

    /// Changes an item of a list of this kind, whose items have `size` bytes.
    fn item(&mut self, kind: u8, size: usize, numbers: &mut Numbers) -> Option<()> {
        let items = self.list(self.value(kind, numbers)?, 0)?;
        let at = items.at(numbers.below(items.count)?, size);
        self.set(at, numbers.below(self.values()?.count + 2)?)
    }

    /// Changes the value index of an input or output.
    fn port(&mut self, slot: usize, numbers: &mut Numbers) -> Option<()> {
        let ports = self.list(self.plan()?, slot)?;
        let at = ports.at(numbers.below(ports.count)?, 4);
        self.set(at, numbers.below(self.values()?.count + 2)?)
    }
}
