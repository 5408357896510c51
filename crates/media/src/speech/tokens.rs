//! The special tokens of Whisper's vocabularies.

/// Size of the vocabulary of models for English alone. Their tokenizers have tokens of languages too.
const ENGLISH_VOCABULARY: usize = 51_864;

/// Languages of Whisper, by their tokens.
const LANGUAGES: &str = "en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur \
    hr bg lt la mi ml cy sk te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka \
    be tg sd gu am yi lo uz fo ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue";

/// Signs that are no speech. Whisper leaves them out.
const SIGNS: &[&str] = &[
    "\"", "#", "(", ")", "*", "+", "/", ":", ";", "<", "=", ">", "@", "[", "\\", "]", "^", "_",
    "`", "{", "|", "}", "~", "<<", ">>", "<<<", ">>>", "--", "---", "-(", "-[", "('", "(\"", "((",
    "))", "(((", ")))", "[[", "]]", "{{", "}}",
    // Notes and corner brackets, as vocabularies of bytes write them.
    "âĻ", "ãĢĮ", "ãĢį", "ãĢİ", "ãĢı",
];

/// A space in front of a word, as vocabularies of bytes write it.
const SPACE: char = 'Ġ';

/// Numbers of the special tokens of a model.
#[derive(Debug, Clone)]
pub struct SpeechTokens {
    pub(super) start: u32,
    pub(super) end: u32,
    pub(super) transcribe: Option<u32>,
    pub(super) translate: Option<u32>,
    pub(super) no_speech: Option<u32>,
    pub(super) no_timestamps: Option<u32>,
    pub(super) first_timestamp: u32,
    /// Languages with their tokens; empty for a model that knows one.
    pub(super) languages: Vec<(&'static str, u32)>,
    /// Tokens that are never chosen.
    pub(super) suppressed: Vec<u32>,
    /// A space alone, with which no text begins.
    pub(super) space: Option<u32>,
}

impl SpeechTokens {
    /// Finds the tokens of a model with a `vocabulary` of this many logits; `id_of` finds a token.
    pub fn find(vocabulary: usize, id_of: impl Fn(&str) -> Option<u32>) -> Result<Self, String> {
        let known = |token: &str| id_of(token).filter(|id| (*id as usize) < vocabulary);
        let needed = |token: &str| {
            known(token)
                .ok_or_else(|| format!("the tokenizer has no token `{token}`, as Whisper's have"))
        };
        let start = needed("<|startoftranscript|>")?;
        let transcribe = known("<|transcribe|>").filter(|_| vocabulary != ENGLISH_VOCABULARY);
        let languages = LANGUAGES.split_ascii_whitespace();
        let languages = languages.filter_map(|code| Some((code, known(&format!("<|{code}|>"))?)));
        let tasks = [
            "<|startoftranscript|>",
            "<|startoflm|>",
            "<|startofprev|>",
            "<|transcribe|>",
            "<|translate|>",
            "<|nospeech|>",
            "<|nocaptions|>",
        ];
        let signs = SIGNS
            .iter()
            .flat_map(|sign| [(*sign).to_owned(), format!("{SPACE}{sign}")]);
        // A hyphen or an apostrophe begins no word.
        let signs = signs.chain([format!("{SPACE}-"), format!("{SPACE}'")]);
        let suppressed = signs.chain(tasks.map(str::to_owned));
        let mut suppressed: Vec<u32> = suppressed.filter_map(|token| known(&token)).collect();
        let languages: Vec<_> = languages.collect();
        suppressed.extend(languages.iter().map(|(_, id)| *id));
        let no_timestamps = known("<|notimestamps|>");
        // Some tokenizers leave the timestamps out. They follow this token.
        let first_timestamp = known("<|0.00|>").or(no_timestamps.map(|token| token + 1));
        let first_timestamp = first_timestamp.filter(|token| (*token as usize) < vocabulary);
        Ok(Self {
            start,
            end: needed("<|endoftext|>")?,
            transcribe,
            translate: known("<|translate|>"),
            no_speech: known("<|nospeech|>").or_else(|| known("<|nocaptions|>")),
            no_timestamps,
            first_timestamp: match first_timestamp {
                Some(token) => token,
                None => needed("<|0.00|>")?,
            },
            languages: if transcribe.is_some() {
                languages
            } else {
                Vec::new()
            },
            suppressed,
            space: known(&SPACE.to_string()),
        })
    }

    /// Returns the token of a language.
    pub fn language(&self, code: &str) -> Result<u32, String> {
        if self.languages.is_empty() {
            return match code {
                "en" => Ok(self.start),
                _ => Err(format!(
                    "unknown language `{code}`: the model knows `en` alone"
                )),
            };
        }
        let found = self.languages.iter().find(|(known, _)| *known == code);
        found.map(|(_, id)| *id).ok_or_else(|| {
            let known: Vec<&str> = self.languages.iter().map(|(code, _)| *code).collect();
            format!(
                "unknown language `{code}`: expected one of {}",
                known.join(", ")
            )
        })
    }

    pub(super) fn is_timestamp(&self, token: u32) -> bool {
        token >= self.first_timestamp
    }
}
