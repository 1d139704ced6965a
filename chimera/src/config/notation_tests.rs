//! Every setting in every notation: native TOML, text in the file, environment and flag. New settings in
//! the table are covered automatically.

use super::check::CheckedValue;
use super::layer::{Flags, load};
use super::setting::{PairValue, SETTINGS, Setting, SettingKind};
use super::{LoadedConfig, show};
use crate::ambient::Environment;
use std::collections::BTreeMap;

/// Sample values as environment text, not only the default.
fn values(setting: &Setting) -> Vec<String> {
    let key = |byte: &str| byte.repeat(32);
    let (one, other) = (key("1b"), key("2c"));
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    match setting.kind {
        SettingKind::Text | SettingKind::Token => texts(&["some-text"]),
        SettingKind::Path => texts(&["some/path", "/an absolute/path"]),
        SettingKind::Listen => texts(&["localhost:8081", "[::1]:8081", "0.0.0.0:80"]),
        SettingKind::LogFilter => texts(&["debug", "info,chimera_storage=debug"]),
        SettingKind::SecretName => texts(&["secret://some.name"]),
        SettingKind::Url(schemes) => schemes.iter().map(|scheme| format!("{scheme}://host.example/x")).collect(),
        SettingKind::Choice(words) => texts(words),
        SettingKind::Boolean => texts(&["true", "false"]),
        SettingKind::Number { min, max, .. } => vec![min.to_string(), max.to_string()],
        SettingKind::Hosts => texts(&["a.example", "a.example,b.example:25", ""]),
        SettingKind::Networks => texts(&["192.0.2.1", "10.0.0.0/8,2001:db8::/32", ""]),
        SettingKind::Pairs(PairValue::Address) => texts(&["a=https://a.example,b=http://b.example/x"]),
        SettingKind::Pairs(PairValue::Count) => texts(&["a=3,b.c=4"]),
        SettingKind::PublicKeys => public_keys(&[one, other]),
    }
}

/// Derives keys from seeds: not every 64 hex digits are a valid public key.
fn public_keys(seeds: &[String]) -> Vec<String> {
    use chimera_core::ledger::checkpoint::Signer;
    let of = |seed: &String| {
        let seed = hex::decode(seed).unwrap().try_into().unwrap();
        Signer::from_seed(&seed).public_key().to_string()
    };
    vec![seeds.iter().map(of).collect::<Vec<_>>().join(",")]
}

/// The value in native TOML notation.
fn native(setting: &Setting, value: &str) -> String {
    match setting.kind {
        SettingKind::Number { .. } | SettingKind::Boolean => value.to_owned(),
        _ if setting.is_list() => {
            let items: Vec<&str> = value.split(',').filter(|item| !item.is_empty()).collect();
            format!("{items:?}")
        }
        _ => format!("{value:?}"),
    }
}

fn loaded(file: &str, env: &[(String, String)], flags: &[(&'static str, String)]) -> Result<LoadedConfig, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("chimera.toml");
    std::fs::write(&path, file).unwrap();
    let flags = Flags { config: Some(path), values: flags.to_vec() };
    let environment = Environment {
        settings: env.iter().cloned().collect(),
        home: Some("/home/ann".to_owned()),
        ..Environment::default()
    };
    load(&flags, &environment).map_err(|failure| failure.message)
}

/// The effective value, and everything derived from the configuration.
fn seen(loaded: &LoadedConfig, setting: &Setting) -> (CheckedValue, String, String) {
    let config = format!("{:?}", loaded.config);
    (loaded.values[setting.key].typed.clone(), config, show(loaded, true, false))
}

#[test]
fn every_setting_means_the_same_natively_and_as_text() {
    for setting in SETTINGS {
        for value in values(setting) {
            let line = |written: &str| format!("{} = {written}\n", setting.key);
            let file = loaded(&line(&native(setting, &value)), &[], &[]).unwrap();
            let expected = seen(&file, setting);
            let text = loaded(&line(&format!("{value:?}")), &[], &[]);
            let around = format!(" {value}\r\n");
            let env = |text: &str| loaded("", &[(setting.env(), text.to_owned())], &[]);
            let spellings = [("text", text), ("env", env(&value)), ("white space", env(&around))];
            for (spelling, found) in spellings {
                let found = found.map(|found| seen(&found, setting));
                assert_eq!(found, Ok(expected.clone()), "{} = {value:?}, {spelling}", setting.key);
            }
            if setting.flag.is_some() {
                let flag = loaded("", &[], &[(setting.key, value.clone())]).map(|found| seen(&found, setting));
                assert_eq!(flag, Ok(expected.clone()), "{} = {value:?}, flag", setting.key);
            }
            if let Some(alias) = setting.alias {
                let found = loaded("", &[(alias.to_owned(), value.clone())], &[]).map(|found| seen(&found, setting));
                assert_eq!(found, Ok(expected), "{alias}={value:?}");
            }
        }
    }
}

/// A setting that no code reads would be accepted and do nothing.
#[test]
fn every_setting_changes_what_the_program_sees() {
    let before = format!("{:?}", loaded("[mail]\nserver = \"there\"\n", &[], &[]).unwrap().config);
    for setting in SETTINGS {
        let mail = ("CHIMERA_MAIL__SERVER".to_owned(), "there".to_owned());
        let changes = values(setting).into_iter().any(|value| {
            let env: BTreeMap<_, _> = [mail.clone(), (setting.env(), value)].into();
            let env: Vec<_> = env.into_iter().collect();
            format!("{:?}", loaded("", &env, &[]).unwrap().config) != before
        });
        assert!(changes, "{}", setting.key);
    }
}

#[test]
fn every_example_in_the_reference_is_a_value() {
    let mut examples = 0;
    for setting in SETTINGS {
        for example in setting.doc.split("such as `").skip(1).filter_map(|rest| rest.split('`').next()) {
            let given = loaded("", &[(setting.env(), example.to_owned())], &[]);
            assert!(given.is_ok(), "{}: {given:?}", setting.key);
            examples += 1;
        }
    }
    assert!(examples >= 4, "{examples}");
}

#[test]
fn booleans_and_words_are_understood_however_people_write_them() {
    let strict = SETTINGS.iter().find(|setting| setting.key == "scopes.strict").unwrap();
    let says = |text: &str| {
        let loaded = loaded("", &[(strict.env(), text.to_owned())], &[]);
        loaded.map(|loaded| loaded.config.access.strict_scopes)
    };
    for yes in ["true", "TRUE", "True", "yes", "on", "1"] {
        assert_eq!(says(yes), Ok(true), "{yes}");
    }
    for no in ["false", "No", "off", "0"] {
        assert_eq!(says(no), Ok(false), "{no}");
    }
    let refused = says("maybe").unwrap_err();
    assert_eq!(refused, "env CHIMERA_SCOPES__STRICT: `scopes.strict` must be `true` or `false`, not \"maybe\"");
    let loaded = loaded("", &[("CHIMERA_LOG__FORMAT".to_owned(), "JSON".to_owned())], &[]).unwrap();
    assert_eq!(loaded.values["log.format"].typed, CheckedValue::Text("json".to_owned()));
}

#[test]
fn whole_numbers_may_be_grouped_and_have_another_base_in_the_file() {
    for (file, env) in [("86_400", "86_400"), ("0x15180", "86400"), ("+86400", "86400")] {
        let file = loaded(&format!("ledger.checkpoint_seconds = {file}\n"), &[], &[]).unwrap();
        let env = loaded("", &[("CHIMERA_LEDGER__CHECKPOINT_SECONDS".to_owned(), env.to_owned())], &[]).unwrap();
        for loaded in [file, env] {
            assert_eq!(loaded.values["ledger.checkpoint_seconds"].typed, CheckedValue::Number(86_400));
        }
    }
    for wrong in ["-1", "60.0", "1_000_000", "1979-05-27", "{ a = 1 }", "true"] {
        assert!(loaded(&format!("ledger.checkpoint_seconds = {wrong}\n"), &[], &[]).is_err(), "{wrong}");
    }
}

#[test]
fn an_empty_variable_is_refused_and_an_empty_list_is_a_list() {
    let refused = loaded("", &[("CHIMERA_DATABASE_URL".to_owned(), " \n".to_owned())], &[]).unwrap_err();
    let expected = "env CHIMERA_DATABASE_URL: `database_url` is set but empty; give it a value, or unset it";
    assert_eq!(refused, expected);
    let env = [("CHIMERA_EGRESS_ALLOW".to_owned(), String::new())];
    let cleared = loaded("egress_allow = [\"a.example\"]\n", &env, &[]).unwrap();
    assert_eq!(cleared.config.egress_allow, Vec::<String>::new());
}

#[test]
fn a_tilde_is_the_home_folder_and_nothing_else() {
    let data = |text: &str| {
        loaded("", &[("CHIMERA_DATA_DIR".to_owned(), text.to_owned())], &[])
            .map(|loaded| loaded.config.data_dir.display().to_string())
    };
    assert_eq!(data("~/chimera"), Ok("/home/ann/chimera".to_owned()));
    assert_eq!(data("~"), Ok("/home/ann".to_owned()));
    assert_eq!(data("a~/b"), Ok("a~/b".to_owned()));
    assert!(data("~bob/chimera").unwrap_err().contains("write the full path"));
}

#[test]
fn a_refusal_shows_no_number_that_may_be_a_secret_without_its_quotes() {
    let secret = |setting: &&Setting| {
        matches!(setting.kind, SettingKind::Token | SettingKind::Text | SettingKind::SecretName | SettingKind::Url(_))
    };
    let mut refusals = 0;
    for setting in SETTINGS.iter().filter(secret) {
        let refused = loaded(&format!("{} = 1234567890123456789\n", setting.key), &[], &[]);
        let Err(refused) = refused else { continue };
        assert!(!refused.contains("1234567890123456789"), "{}: {refused}", setting.key);
        refusals += 1;
    }
    assert!(refusals > 0);
}
