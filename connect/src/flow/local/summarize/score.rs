//! Scores sentences.
//!
//! A word's weight is its share of the text; a sentence's score is the mean of its words. Once a sentence is
//! selected, the weights of its words are squared, so that the next one covers something else. Scripts without spaces
//! are counted by character pairs.

use super::sentences::Sentence;
use std::collections::{BTreeMap, BTreeSet};

/// Words that say nothing about a text's subject.
const STOP_WORDS: &str = " a about after all also an and any are as at be been but by can could did do does for from had \
    has have he her his how if in into is it its just more most no not of on one only or other our out over she so \
    some such than that the their them then there these they this to up was we were what when which who will with \
    would you your \
    aber als am an auch auf aus bei bin bis das dass dem den der des die doch durch ein eine einem einen einer eines er \
    es für hat ich ihr im in ist ja kann mit nach nicht noch nur oder sein sich sie sind so über um und uns von vor war \
    was wenn wer wie wir wird zu zum zur \
    au aux avec ce ces cette dans de des du elle en est et il ils je la le les leur mais ne nous on ou où par pas pour \
    que qui sa se ses son sont sur un une vous \
    al como con del el ella era es esta este ha hay las lo los más muy no o para pero por que se ser sin su sus una y \
    и в во не что он на я с со как а то все она так его но да ты к у же вы за бы по ее мне было от меня о из ему для \
    это их или \
    και το να της του η ο οι τα των στο στη με για που από δεν θα είναι ";

/// Sentences with fewer words are too short to stand alone.
const WORDS_MIN: usize = 4;

/// Indices of the best sentences, best first, at most `count`.
pub(super) fn rank(sentences: &[Sentence], count: usize) -> Vec<usize> {
    let (words, mut weights) = weigh_words(sentences);
    let mut taken: Vec<usize> = Vec::new();
    while taken.len() < count.min(sentences.len()) {
        let best = (0..sentences.len())
            .filter(|at| !taken.contains(at))
            .map(|at| (at, weight(&words[at], &weights, at, sentences[at].opens)))
            .reduce(|best, next| if next.1 > best.1 { next } else { best });
        let Some((at, _)) = best else { break };
        for word in &words[at] {
            weights[*word] *= weights[*word];
        }
        taken.push(at);
    }
    taken
}

/// Every sentence as word ids, and the weight of each word.
fn weigh_words(sentences: &[Sentence]) -> (Vec<Vec<usize>>, Vec<f64>) {
    let silent: BTreeSet<&str> = STOP_WORDS.split_whitespace().collect();
    let mut numbers: BTreeMap<String, usize> = BTreeMap::new();
    let (mut counts, mut total): (Vec<f64>, f64) = (Vec::new(), 0.0);
    let mut number = |word: String| {
        let number = *numbers.entry(word).or_insert(counts.len());
        if number == counts.len() {
            counts.push(0.0);
        }
        counts[number] += 1.0;
        total += 1.0;
        number
    };
    let words: Vec<Vec<usize>> =
        sentences.iter().map(|s| terms(&s.text, &silent).into_iter().map(&mut number).collect()).collect();
    (words, counts.into_iter().map(|count| count / total).collect())
}

/// The mean weight of the words; the first sentence, and the first of a paragraph, get a small bonus.
fn weight(words: &[usize], weights: &[f64], at: usize, opens: bool) -> f64 {
    let sum: f64 = words.iter().map(|word| weights[*word]).sum();
    let place = match (at, opens) {
        (0, _) => 1.3,
        (_, true) => 1.1,
        _ => 1.0,
    };
    sum / words.len().max(WORDS_MIN) as f64 * place
}

/// The terms that a sentence is scored by.
fn terms(text: &str, silent: &BTreeSet<&str>) -> Vec<String> {
    let mut terms = Vec::new();
    for word in text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        if word.chars().any(is_unspaced) {
            let chars: Vec<char> = word.chars().collect();
            terms.extend(chars.windows(2).map(|pair| pair.iter().collect::<String>()));
        } else if !silent.contains(word) {
            terms.push(word.to_owned());
        }
    }
    terms
}

/// Characters of scripts without spaces between words: kana, Han, Thai, Lao, Khmer.
const fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{e00}'..='\u{eff}' | '\u{1780}'..='\u{17ff}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}'
        | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::super::sentences::split;
    use super::*;

    #[test]
    fn words_that_say_nothing_do_not_count() {
        let silent = STOP_WORDS.split_whitespace().collect();
        assert_eq!(terms("The cat and the map", &silent), ["cat", "map"]);
        assert_eq!(terms("und Катя не это", &silent), ["катя"]);
        assert_eq!(terms("東京都", &silent), ["東京", "京都"]);
    }

    #[test]
    fn a_sentence_that_repeats_another_comes_late() {
        let text = "Alpha beta gamma delta. Alpha beta gamma delta. Epsilon beta alpha zeta.";
        assert_eq!(rank(&split(text), 3), [0, 2, 1]);
    }
}
