//! Formats the value of a limit for readers: `64 KiB`, `30 days`, `10,000`.

use super::Limit;

const SECOND_MS: u64 = 1_000;
const DAY_SECONDS: u64 = 86_400;

/// The value with its unit, taken from the type or the name; `None` if it cannot be evaluated.
pub(super) fn shown(limit: &Limit, all: &[Limit]) -> Option<String> {
    let has = |unit: &str| limit.name.split('_').any(|word| word == unit);
    if limit.kind == "Duration" {
        return duration(&limit.value);
    }
    let number = sum(&limit.value, all)?;
    Some(match () {
        () if has("SECONDS") => time(number * SECOND_MS),
        () if has("MS") => time(number),
        () if has("KIB") => bytes(number * 1024),
        () if has("BYTES") => bytes(number),
        () if has("CHARS") => format!("{} characters", grouped(number)),
        () => grouped(number),
    })
}

fn duration(value: &str) -> Option<String> {
    let (unit, count) = value.strip_prefix("Duration::from_")?.strip_suffix(')')?.split_once('(')?;
    let unit_ms = match unit {
        "secs" => SECOND_MS,
        "millis" => 1,
        _ => return None,
    };
    Some(time(number(count)? * unit_ms))
}

/// Numbers and other limits with `+`, `-` and `*` between them.
fn sum(value: &str, all: &[Limit]) -> Option<u64> {
    if let Some((before, last)) = value.rsplit_once(" + ") {
        return sum(before, all)?.checked_add(product(last, all)?);
    }
    if let Some((before, last)) = value.rsplit_once(" - ") {
        return sum(before, all)?.checked_sub(product(last, all)?);
    }
    product(value, all)
}

fn product(value: &str, all: &[Limit]) -> Option<u64> {
    let factor = |text: &str| {
        let named = || all.iter().find(|limit| limit.name == text).and_then(|limit| sum(&limit.value, all));
        number(text).or_else(named)
    };
    value.split(" * ").map(factor).try_fold(1_u64, |all, factor| all.checked_mul(factor?))
}

fn number(text: &str) -> Option<u64> {
    text.strip_suffix(".0").unwrap_or(text).replace('_', "").parse().ok()
}

fn time(ms: u64) -> String {
    let seconds = ms / SECOND_MS;
    match () {
        () if !ms.is_multiple_of(SECOND_MS) => format!("{ms} ms"),
        () if seconds == DAY_SECONDS => "1 day".to_owned(),
        () if seconds >= DAY_SECONDS && seconds.is_multiple_of(DAY_SECONDS) => {
            format!("{} days", seconds / DAY_SECONDS)
        }
        () if seconds >= 3_600 && seconds.is_multiple_of(3_600) => format!("{} h", seconds / 3_600),
        () if seconds >= 60 && seconds.is_multiple_of(60) => format!("{} min", seconds / 60),
        () => format!("{seconds} s"),
    }
}

fn bytes(count: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| count >= *size && count.is_multiple_of(*size)) {
        Some((unit, size)) => format!("{} {unit}", count / size),
        None => format!("{} bytes", grouped(count)),
    }
}

/// A number with thousands separators.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::*;

    #[test]
    fn a_value_has_the_unit_that_its_name_or_type_tells() {
        let cases = [
            ("A_BYTES_MAX: usize = 2 * 1_024 * 1024", "2 MiB"),
            ("A_BYTES_MAX: usize = 300", "300 bytes"),
            ("A_KIB: i64 = 16_384", "16 MiB"),
            ("A_SECONDS: i64 = 30 * 86_400", "30 days"),
            ("A_SECONDS_MAX: f64 = 3_600.0", "1 h"),
            ("A_SECONDS: i64 = 45", "45 s"),
            ("A_MS: i64 = 500", "500 ms"),
            ("A_CHARS_MAX: usize = 8_000", "8,000 characters"),
            ("A_MAX: usize = 10_000", "10,000"),
            ("A: Duration = Duration::from_millis(60_000)", "1 min"),
            ("A_MAX: usize = 4 * OTHER_MAX - 2", "30"),
        ];
        for (declared, expected) in cases {
            let limits = read("a.rs", &format!("pub const {declared};\npub const OTHER_MAX: usize = 8;\n"));
            assert_eq!(shown(&limits[0], &limits).as_deref(), Some(expected), "{declared}");
        }
        let unknown = read("a.rs", "pub const A: usize = size_of::<u8>();\n");
        assert_eq!(shown(&unknown[0], &unknown), None);
    }
}
