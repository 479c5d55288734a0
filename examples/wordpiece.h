// SPDX-License-Identifier: Apache-2.0
// BERT's tokenizer for the examples: a sentence in UTF-8 to token ids, by a checkpoint's
// tokenizer.json. It takes ASCII, Latin-1, Latin Extended-A, general punctuation and Chinese
// characters. Any other character is an error, as its case or its accents would need tables.
#ifndef EXAMPLES_WORDPIECE_H
#define EXAMPLES_WORDPIECE_H

#include "checkpoint.h"

#include <ctype.h>

typedef struct wordpiece {
    json_t *root;
    const json_t *vocabulary;     // piece: id
    const char *unknown, *prefix; // prefix of a piece that goes on a word: ##
    size_t longest;               // characters of a word that is looked up
    int is_lowered;               // cased models keep capitals and accents
} wordpiece;

/** Where ids go. */
typedef struct id_list {
    int32_t *ids;
    int64_t count, room;
} id_list;

static inline const char *type_of(const json_t *root, const char *part) {
    const char *type = json_string_value(json_object_get(json_object_get(root, part), "type"));
    return type ? type : "missing";
}

static inline void expect_type(const json_t *root, const char *part, const char *wanted) {
    if (strcmp(type_of(root, part), wanted) != 0)
        fail("tokenizer.json: %s is %s; accepted: %s", part, type_of(root, part), wanted);
}

static inline void open_wordpiece(wordpiece *w, const char *folder) {
    w->root = read_json(folder, "tokenizer.json", 1);
    expect_type(w->root, "model", "WordPiece");
    expect_type(w->root, "normalizer", "BertNormalizer");
    expect_type(w->root, "pre_tokenizer", "BertPreTokenizer");
    const json_t *model = json_object_get(w->root, "model");
    const json_t *normalizer = json_object_get(w->root, "normalizer");
    const json_t *strip = json_object_get(normalizer, "strip_accents");
    w->vocabulary = json_object_get(model, "vocab");
    w->unknown = json_string_value(json_object_get(model, "unk_token"));
    w->prefix = json_string_value(json_object_get(model, "continuing_subword_prefix"));
    w->longest = (size_t)integer(model, "max_input_chars_per_word", 100);
    w->is_lowered = json_is_true(json_object_get(normalizer, "lowercase"));
    if (!w->unknown || !w->prefix || !json_is_object(w->vocabulary))
        fail("tokenizer.json: vocab, unk_token or continuing_subword_prefix is missing");
    if (json_is_boolean(strip) && json_is_true(strip) != w->is_lowered)
        fail("tokenizer.json: strip_accents is not what lowercase is; accepted: null");
}

static inline int32_t id_of(const wordpiece *w, const char *piece) {
    const json_t *id = json_object_get(w->vocabulary, piece);
    if (!json_is_integer(id))
        fail("tokenizer.json: no token %s", piece);
    return (int32_t)json_integer_value(id);
}

static inline void add_id(id_list *to, int32_t id) {
    if (to->count == to->room) {
        to->room = 2 * to->room + 64;
        to->ids = realloc(to->ids, (size_t)to->room * sizeof *to->ids);
        if (!to->ids)
            fail("out of memory");
    }
    to->ids[to->count++] = id;
}

// ---- characters

/** Reads a character of UTF-8 and steps over it. */
static inline uint32_t next_character(const char **text) {
    const unsigned char *at = (const unsigned char *)*text;
    const int more = *at < 0x80 ? 0 : *at >= 0xF0 ? 3 : *at >= 0xE0 ? 2 : 1;
    uint32_t character = more ? *at & (0x3FU >> more) : *at;
    if ((*at >= 0x80 && *at < 0xC2) || *at > 0xF4)
        fail("a sentence is not UTF-8");
    for (int i = 1; i <= more; i++) {
        if ((at[i] & 0xC0) != 0x80)
            fail("a sentence is not UTF-8");
        character = character << 6 | (at[i] & 0x3F);
    }
    *text += 1 + more;
    return character;
}

/** Returns whether a character is Chinese, and a word of its own. Compatibility characters, which
 *  decompose, are not among them. */
static inline int is_chinese(uint32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
           (c >= 0x20000 && c <= 0x2A6DF);
}

/** Returns whether a character is punctuation to BERT: all of ASCII's that is no letter or digit,
 *  and Unicode's classes P. */
static inline int is_punctuation(uint32_t c) {
    static const char latin1[] = "\xA1\xA7\xAB\xB6\xB7\xBB\xBF";
    if (c < 0x80)
        return ispunct((int)c);
    if (c < 0x100)
        return strchr(latin1, (int)c) != NULL;
    return c >= 0x2010 && c <= 0x205E && c != 0x2028 && c != 0x2029 && c != 0x202F && c != 0x2044 &&
           c != 0x2052 && !(c >= 0x202A && c <= 0x202E);
}

static inline int is_blank_character(uint32_t c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == 0xA0 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x202F || c == 0x2028 || c == 0x2029 || c == 0x3000;
}

/** Returns whether a character is dropped: controls and formats. */
static inline int is_dropped(uint32_t c) {
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xAD || (c >= 0x200B && c <= 0x200F) ||
           (c >= 0x202A && c <= 0x202E);
}

/** Lower-cases a letter of Latin-1 or Latin Extended-A and takes its accent off, as far as Unicode
 *  decomposes it. */
static inline uint32_t plain_letter(uint32_t c) {
    // From U+00C0 on; a dot stands for a letter that does not decompose.
    static const char plain[] = "aaaaaa.ceeeeiiii.nooooo..uuuuy..aaaaaa.ceeeeiiii.nooooo..uuuuy.y"
                                "aaaaaaccccccccdd..eeeeeeeeeegggggggghh..iiiiiiiii...jjkk.llllll"
                                "....nnnnnn...oooooo..rrrrrrsssssssstttt..uuuuuuuuuuuuwwyyyzzzzzz.";
    if (c < 0x80)
        return (uint32_t)tolower((int)c);
    if (c < 0xC0 || c > 0x17F)
        return c;
    if (plain[c - 0xC0] != '.')
        return (uint32_t)plain[c - 0xC0];
    if (c < 0x100)
        return c < 0xDF && c != 0xD7 ? c + 0x20 : c;
    const int is_even_capital = c < 0x138 || c >= 0x14A;
    return c == 0x17F || c == 0x138 || c == 0x149 ? c : is_even_capital ? c | 1 : c + (c & 1);
}

static inline void put_character(char **to, uint32_t c) {
    const int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    *(*to)++ = (char)(more ? (0xFF00U >> (more + 1) & 0xFFU) | c >> 6 * more : c);
    for (int i = more - 1; i >= 0; i--)
        *(*to)++ = (char)(0x80U | (c >> 6 * i & 0x3FU));
}

// ---- words

/** Adds the longest piece that a word's rest begins with; returns its bytes, 0 if there is none. */
static inline size_t add_piece(const wordpiece *w, id_list *to, const char *rest, size_t bytes,
                               const char *prefix) {
    const size_t start = strlen(prefix);
    char *piece = allocate_host(start + bytes + 1);
    memcpy(piece, prefix, start);
    memcpy(piece + start, rest, bytes);
    for (; bytes; bytes--) {
        piece[start + bytes] = 0;
        if (json_object_get(w->vocabulary, piece)) {
            add_id(to, id_of(w, piece));
            break;
        }
    }
    free(piece);
    return bytes;
}

/** Splits a word into pieces of the vocabulary, from the left; a word that leaves a rest is one
 *  unknown token. */
static inline void add_word(const wordpiece *w, id_list *to, const char *word, size_t bytes) {
    const int64_t before = to->count;
    size_t characters = 0, done = 0, length = 1;
    for (size_t i = 0; i < bytes; i++)
        characters += ((unsigned char)word[i] & 0xC0) != 0x80;
    for (; characters <= w->longest && done < bytes && length; done += length)
        length = add_piece(w, to, word + done, bytes - done, done ? w->prefix : "");
    if (done < bytes) {
        to->count = before;
        add_id(to, id_of(w, w->unknown));
    }
}

static inline void refuse_special(const wordpiece *w, const char *sentence) {
    size_t i;
    const json_t *token;
    json_array_foreach(json_object_get(w->root, "added_tokens"), i, token) {
        const char *text = json_string_value(json_object_get(token, "content"));
        if (text && strstr(sentence, text))
            fail("a sentence has the special token %s", text);
    }
}

/** Adds a sentence's ids, between [CLS] and [SEP]. */
static inline void tokenize(const wordpiece *w, id_list *to, const char *sentence) {
    char *word = allocate_host(strlen(sentence) + 1), *end = word;
    refuse_special(w, sentence);
    add_id(to, id_of(w, "[CLS]"));
    for (const char *at = sentence; *at || end != word;) {
        const uint32_t c = *at ? next_character(&at) : ' '; // a blank ends the last word
        const int is_blank = is_blank_character(c);
        const int is_alone = is_punctuation(c) || is_chinese(c);
        if (!is_blank && is_dropped(c))
            continue;
        if (!is_blank && !is_alone && c > 0x17F)
            fail("a sentence has U+%04X; accepted: Latin letters, punctuation, Chinese", c);
        if (is_blank || is_alone) {
            add_word(w, to, word, (size_t)(end - word));
            end = word;
        }
        if (!is_blank)
            put_character(&end, w->is_lowered ? plain_letter(c) : c);
        if (is_alone) {
            add_word(w, to, word, (size_t)(end - word));
            end = word;
        }
    }
    add_id(to, id_of(w, "[SEP]"));
    free(word);
}

#endif
