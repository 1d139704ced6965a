//! Variables that a cluster sets beside a service called `chimera` or `chimera-…`.
//!
//! Kubernetes (service links) and Docker (container links) name these variables after the service, so they
//! start like settings. They mean nothing to this process and are ignored. Only their exact shapes match: a
//! misspelled setting must still be rejected, so where the name is ambiguous (`CHIMERA_MAIL_PORT`), the
//! value decides.

/// Whether a cluster set this variable for a service.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    let words: Vec<&str> = name.split('_').collect();
    let is_label = |word: &&str| !word.is_empty() && word.bytes().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
    let service = words.iter().take_while(|word| is_label(word)).count();
    words.first() == Some(&"CHIMERA")
        && (1..=service).any(|at| words.get(at..).is_some_and(|rest| is_link_suffix(rest, value)))
}

/// Matches the part of the variable name after the service name.
fn is_link_suffix(words: &[&str], value: &str) -> bool {
    match words {
        ["SERVICE", "HOST" | "PORT"] => true,
        ["SERVICE", "PORT", port @ ..] => port.iter().all(|word| !word.is_empty()),
        ["PORT"] => is_endpoint(value),
        ["PORT", port, "TCP" | "UDP" | "SCTP", part @ ..] => is_port(port) && is_part(part),
        // Docker: the container's name and its environment.
        ["NAME"] => value.starts_with('/'),
        ["ENV", variable @ ..] => !variable.is_empty(),
        _ => false,
    }
}

fn is_part(words: &[&str]) -> bool {
    matches!(words, [] | ["ADDR" | "PORT" | "PROTO" | "START" | "END"] | ["PORT", "START" | "END"])
}

/// `tcp://10.0.0.1:8080`
fn is_endpoint(value: &str) -> bool {
    let rest = ["tcp://", "udp://", "sctp://"].iter().find_map(|scheme| value.trim().strip_prefix(scheme));
    rest.and_then(|rest| rest.rsplit_once(':')).is_some_and(|(host, port)| !host.is_empty() && is_port(port))
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::super::setting::SETTINGS;
    use super::*;

    #[test]
    fn what_kubernetes_and_docker_set_beside_a_service_is_known_by_its_shape() {
        for (name, value) in [
            ("CHIMERA_SERVICE_HOST", "10.0.0.1"),
            ("CHIMERA_SERVICE_PORT", "8080"),
            ("CHIMERA_SERVICE_PORT_HTTP", "8080"),
            ("CHIMERA_SERVICE_PORT_HTTP_METRICS", "9090"),
            ("CHIMERA_PORT", "tcp://10.0.0.1:8080"),
            ("CHIMERA_PORT", "tcp://[fd00::1]:8080"),
            ("CHIMERA_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
            ("CHIMERA_PORT_8080_TCP_PROTO", "tcp"),
            ("CHIMERA_PORT_8080_TCP_PORT", "8080"),
            ("CHIMERA_PORT_8080_TCP_ADDR", "10.0.0.1"),
            ("CHIMERA_PORT_53_UDP_ADDR", "10.0.0.1"),
            ("CHIMERA_PORT_8000_TCP_PORT_START", "8000"),
            ("CHIMERA_POSTGRES_SERVICE_HOST", "10.0.0.2"),
            ("CHIMERA_MAIL_PORT", "tcp://10.0.0.3:25"),
            ("CHIMERA_MY_DB_2_PORT_5432_TCP_ADDR", "10.0.0.2"),
            ("CHIMERA_NAME", "/worker/chimera"),
            ("CHIMERA_ENV_CHIMERA_LOG__LEVEL", "debug"),
        ] {
            assert!(is_service_link(name, value), "{name}={value}");
        }
    }

    #[test]
    fn what_could_be_a_setting_of_ours_is_none_of_theirs() {
        for (name, value) in [
            ("CHIMERA_LISTN", "127.0.0.1:8080"),
            ("CHIMERA_MAIL_PORT", "587"),
            ("CHIMERA_PORT", "8080"),
            ("CHIMERA_PORT_HTTP_TCP", "tcp://10.0.0.1:8080"),
            ("CHIMERA_PORT_8080_TCP_HOST", "10.0.0.1"),
            ("CHIMERA_PORT_99999_TCP", "x"),
            ("CHIMERA_SERVICE", "x"),
            ("CHIMERA_HTTP__SERVICE_HOST", "x"),
            ("CHIMERA_NAME", "mine"),
            ("CHIMERA_ENV", "production"),
            ("CHIMERAX_SERVICE_HOST", "10.0.0.1"),
        ] {
            assert!(!is_service_link(name, value), "{name}={value}");
        }
        for setting in SETTINGS {
            assert!(!is_service_link(&setting.env(), "tcp://10.0.0.1:8080"), "{}", setting.key);
        }
    }
}
