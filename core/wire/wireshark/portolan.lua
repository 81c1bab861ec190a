-- SPDX-License-Identifier: MIT OR Apache-2.0
-- Wireshark dissector of the Portolan protocol, version 1. It covers:
--
-- - frames and records on raw Ethernet, UDP and shared memory
-- - parts of messages on TCP streams, and liveness queries
-- - connection messages, and the datagrams of a broadcast by multicast
--
-- Copy this file to Wireshark's folder of personal Lua plugins (Help, About, Folders), or name it:
-- `tshark -X lua_script:portolan.lua -o udp.try_heuristic_first:TRUE -r FILE`.
--
-- A field has the name that it has in the crate `wire`. Invariant: every byte that the functions
-- below pass over is added to the tree once. A test of `wire` compares fields, values and verdicts
-- with the crate, so a record or field without a dissector fails that test.

local portolan = Proto("portolan", "Portolan")
local on_ethernet = Proto("portolan_ethernet", "Portolan on Ethernet")
local on_tcp = Proto("portolan_tcp", "Portolan over TCP")

local VERSION = 1
local FRAME_HEADER_LEN, CHECK_LEN, SEAL_LEN = 16, 8, 24
local HELLO_LEN, ENDPOINT_ID_LEN = 80, 64
local LIVENESS_LEN = 40
local MULTICAST_HEADER_LEN, MULTICAST_TAG_LEN = 40, 16
local GREETING_LEN, FRONT_LEN, LENGTHS_LEN = 24, 64, 8
local CONNECTION_HEAD_LEN = 72
-- Shortest record.
local RECORD_LEN_MIN = 8
local OPEN_JOB_ID = "portolan:address"

local LANES = { [0] = "Low", [1] = "High" }
local PATHS = { [0] = "shm", [1] = "udp", [2] = "packet", [3] = "udp2" }

-- Layouts: each entry is a field with its length in bytes. A name of nil is unused space. Options:
-- `values` names the values, `hex` shows them in hexadecimal, `bytes` is for uninterpreted bytes,
-- `bits` lists the flags in a byte with their masks, `unless` names a flag without which the field
-- is unused.

local function flags(...)
    local list = { { "lane", 0x01, LANES } }
    for _, bit in ipairs({ ... }) do
        list[#list + 1] = bit
    end
    return { "flags", 1, bits = list }
end

local MESSAGE_FLAGS = flags({ "best_effort", 0x02 }, { "system", 0x04 })
local IMM_FLAG, FETCH_FLAG, TRANSFER_FLAG = { "has_imm", 0x02 }, { "fetch", 0x04 }, { "by_transfer", 0x08 }
local SPACE = { "space", 1, values = { [0] = "Tagged", [1] = "Plain" }, only = true }
local FORM = { "form", 1, values = { [0] = "Tag", [1] = "Tag and immediate word" }, only = true }
local DONE = { [0] = "Complete", "Refused", "Unwritable", "Unreadable" }
local REPLY = {
    [0] = "Done", "No such key", "Beyond the region", "Not allowed", "Region closed",
    "Unknown atomic operation", [7] = "Memory cannot be accessed",
}
local CODES = {
    [0] = "put", "sum", "product", "min", "max", "bitwise and", "bitwise or", "bitwise xor", "logical and",
    "logical or", "logical xor", "write", "read", "swap if =", "swap if ≠", "swap if <", "swap if ≤",
    "swap if >", "swap if ≥", "swap the masked bits",
}
local DATATYPES = { [0] = "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64" }

local function kind_field(name)
    return { "kind", 1, shown = name }
end

-- Returns the checker for a part of something longer.
local function is_within(offset, len, total)
    return function(v)
        return v[offset] + v[len] <= v[total]
    end
end

-- Records by their kind. `payload` names the field with the length of the payload.
local records = {
    [1] = { "Message", { MESSAGE_FLAGS, { "port", 2 }, { "len", 2 }, { "seq", 2 } }, payload = "len" },
    [2] = {
        "Fragment",
        { MESSAGE_FLAGS, { "port", 2 }, { "len", 2 }, { "seq", 2 }, { "message_len", 4 }, { "offset", 4 } },
        payload = "len",
        check = is_within("offset", "len", "message_len"),
    },
    [3] = {
        "Rts",
        {
            MESSAGE_FLAGS, { "port", 2 }, { "len", 2 }, { "seq", 2 }, { "message_len", 8 },
            { "transfer", 4, hex = true }, { "late_done", 1, bool = true }, { nil, 3 },
            { "remote_addr", 8, hex = true },
        },
    },
    [4] = {
        "Grant",
        {
            { nil, 3 }, { "transfer", 4, hex = true }, { "receiver_transfer", 4, hex = true },
            { "behind", 4 }, { "limit", 8 },
        },
    },
    [5] = { "Chunk", { { nil, 3 }, { "transfer", 4, hex = true }, { "offset", 8 } }, payload = "rest" },
    [6] = { "Done", { { "status", 1, values = DONE }, { nil, 2 }, { "transfer", 4, hex = true } } },
    [7] = { "Credit", { { "lane", 1, values = LANES, only = true }, { nil, 2 }, { "limit", 4 } } },
    [8] = {
        "Ack",
        {
            { "path", 1, values = PATHS }, { "word_count", 1 }, { "echo_attempt", 1 }, { "delay_us", 2 },
            { nil, 2 }, { "base", 4 }, { "echo_num", 4 },
        },
        bitmap = "word_count",
    },
    [9] = { "Probe", { { "reply", 1, bool = true }, { "path", 1, values = PATHS }, { nil, 1 }, { "nonce", 4, hex = true } } },
    [10] = { "Marks", { { "path", 1, values = PATHS }, { nil, 2 }, { "count", 4 } } },
    [11] = {
        "BestEffortPart",
        {
            flags({ "system", 0x04 }), { "port", 2 }, { "len", 2 }, { nil, 2 }, { "message_len", 4 },
            { "offset", 4 }, { "number", 4 },
        },
        payload = "len",
        check = function(v)
            return v.len > 0 and v.offset + v.len <= v.message_len
        end,
    },
    [12] = { "StreamMark", { { nil, 3 }, { "num", 4 }, { "received", 4 } } },
    [16] = {
        "Message, tagged",
        { flags(), SPACE, FORM, { "len", 2 }, { "seq", 2 } },
        tagged = true,
        payload = "len",
    },
    [17] = {
        "Fragment, tagged",
        { flags(), SPACE, FORM, { "len", 2 }, { "seq", 2 }, { "message_len", 4 }, { "offset", 4 } },
        tagged = true,
        payload = "len",
        check = is_within("offset", "len", "message_len"),
    },
    [18] = {
        "Rts, tagged",
        {
            flags(), SPACE, FORM, { "len", 2 }, { "seq", 2 }, { "message_len", 8 },
            { "transfer", 4, hex = true }, { "late_done", 1, bool = true }, { nil, 3 },
            { "remote_addr", 8, hex = true },
        },
        tagged = true,
    },
    [32] = {
        "RemoteWrite",
        {
            flags(IMM_FLAG, FETCH_FLAG), { "code", 1, values = CODES }, { "datatype", 1, values = DATATYPES },
            { "len", 2 }, { "seq", 2 }, { "op", 4 }, { "total_len", 4 }, { "part_off", 4 }, { "span", 4 },
            { "key", 8, hex = true }, { "addr", 8, hex = true }, { "imm", 8, hex = true, unless = "has_imm" },
        },
        payload = "len",
        check = is_within("part_off", "len", "total_len"),
    },
    [33] = {
        "RemoteRts",
        {
            flags(IMM_FLAG), { nil, 2 }, { "fragment_len", 2 }, { "seq", 2 }, { "op", 4 },
            { "transfer", 4, hex = true }, { "len", 8 }, { "key", 8, hex = true }, { "addr", 8, hex = true },
            { "imm", 8, hex = true, unless = "has_imm" }, { "remote_addr", 8, hex = true },
        },
    },
    [34] = {
        "RemoteGet",
        {
            flags(TRANSFER_FLAG), { nil, 4 }, { "seq", 2 }, { "op", 4 }, { nil, 4 }, { "len", 8 },
            { "key", 8, hex = true }, { "addr", 8, hex = true },
        },
    },
    [35] = {
        "RemoteReply",
        { { "status", 1, values = REPLY }, flags(), { nil, 1 }, { "len", 2 }, { nil, 2 }, { "op", 4 }, { "part_off", 4 } },
        payload = "len",
    },
    [36] = {
        "RemoteSource",
        {
            { nil, 1 }, { "fragment_len", 2 }, { "op", 4 }, { "transfer", 4, hex = true },
            { "late_done", 1, bool = true }, { nil, 3 }, { "remote_addr", 8, hex = true },
        },
    },
}
for _, record in pairs(records) do
    table.insert(record[2], 1, kind_field(record[1]))
end

-- Field behind the header of a tagged record.
local TAG = { { "tag", 8, hex = true } }
local TAG_AND_WORD = { { "tag", 8, hex = true }, { "imm", 8, hex = true } }
local BITMAP = { { "bitmap", 8, hex = true } }

local FRAME_KINDS = { "Data", "Unnumbered", "Bulk", "Hello", "HelloAck", "Reset" }
local SEALED_KINDS = { [9] = "Data", [10] = "Unnumbered", [11] = "Bulk", [14] = "Reset" }
local FIRST_BYTE = {
    "version_and_kind", 1,
    bits = { { "version", 0xf0 }, { "kind", 0x07, FRAME_KINDS }, { "sealed", 0x08 } },
}
local FRAME = {
    FIRST_BYTE, { "attempt_and_mark", 1, bits = { { "attempt", 0x7f, number = true }, { "checked", 0x80 } } },
    { "frame_len", 2 }, { "packet_num", 4 }, { "session", 8, hex = true },
}
local CHECKSUM = { { "version_and_kind", 1, hex = true }, { "head_len", 1 }, { "value", 6, bytes = true } }
local BULK = { { "transfer", 4, hex = true }, { "fragment_index", 4 } }
local HELLO = {
    { "job_id", 16, bytes = true }, { "from", 4 }, { "to", 4 }, { "epoch", 8 }, { "token", 8, hex = true },
    { "echo_token", 8, hex = true }, { "credits", 4 }, { "credits", 4 }, { "frame_len_max", 2 },
    { "window_frames", 2 }, { "path", 1, values = PATHS },
    { "hello_flags", 1, bits = { { "checksum", 0x01 }, { "hidden_id", 0x02 } } }, { nil, 2 }, { "mac", 16, bytes = true },
}
local ENDPOINT_ID = { { "endpoint_id", ENDPOINT_ID_LEN, bytes = true } }
local SEAL = { { "tag", 16, bytes = true }, { "count", 4 }, { "generation", 4 } }
local ENDPOINTS = { { "to", 2, big = true }, { "from", 2, big = true } }
local LIVENESS = {
    { "magic", 4, bytes = true }, { "kind", 1, values = { "query", "answer" } }, { "idle_ms", 3 },
    { "from", 4 }, { "to", 4 }, { "nonce", 8 }, { "mac", 16, bytes = true },
}
local GREETING = {
    { "magic", 4, bytes = true }, { "version", 1 }, { nil, 3 }, { "token", 8, hex = true },
    { "sender_token", 8, hex = true },
}
local LENGTHS = { { "head_len", 2 }, { nil, 2 }, { "payload_len", 4 } }
local CONNECTION = {
    { "magic", 4, bytes = true }, { "version", 1 }, { "kind", 1, values = { "Request", "Accept", "Reject" } },
    { "data_len", 2 }, { "endpoint_id", ENDPOINT_ID_LEN, bytes = true },
}
local MULTICAST = {
    { "token", 8, hex = true }, { "serial", 8 }, { "block", 4 }, { "len", 3 }, { "piece_count", 1 },
    { "piece", 2 }, { "piece", 2 }, { "piece", 2 }, { "piece", 2 },
    { "piece", 2 }, { "piece", 2 }, { "piece", 2 }, { "piece", 2 },
}

-- Fields of Wireshark by layout and name, registered below.
local all_fields = {}
local fields_of = {}

local INTEGERS = { ProtoField.uint8, ProtoField.uint16, ProtoField.uint24, ProtoField.uint32, [8] = ProtoField.uint64 }

local function label_of(name)
    local text = name:gsub("_", " ")
    return text:sub(1, 1):upper() .. text:sub(2)
end

local function register(filter, entry)
    local name, len = entry[1], entry[2]
    local abbr, label = filter .. "." .. name, entry.shown and "Record" or label_of(name)
    local field
    if entry.bytes then
        field = ProtoField.bytes(abbr, label)
    elseif entry.bool then
        field = ProtoField.bool(abbr, label)
    else
        local display = (entry.hex or entry.bits) and base.HEX or base.DEC
        local values = entry.values
        field = INTEGERS[len](abbr, label, display, values)
    end
    return field
end

local function register_bit(filter, bit)
    local name, mask, values = bit[1], bit[2], bit[3]
    local abbr = filter .. "." .. name
    if values or bit.number or name == "version" then
        return ProtoField.uint8(abbr, label_of(name), base.DEC, values, mask)
    end
    return ProtoField.bool(abbr, label_of(name), 8, nil, mask)
end

-- Registers the fields of a layout under the filter name `portolan.NAME`.
local function define(name, layout)
    local filter = name == "frame" and "portolan" or "portolan." .. name
    local mine = fields_of[name] or {}
    fields_of[name] = mine
    for _, entry in ipairs(layout) do
        local field_name = entry[1]
        if field_name and not mine[field_name] then
            mine[field_name] = register(filter, entry)
            all_fields[#all_fields + 1] = mine[field_name]
        end
        for _, bit in ipairs(entry.bits or {}) do
            if not mine[bit[1]] then
                mine[bit[1]] = register_bit(filter, bit)
                all_fields[#all_fields + 1] = mine[bit[1]]
            end
        end
    end
end

-- "Message, tagged" and "Message" share their fields: portolan.message.len.
local function filter_of(record_name)
    return record_name:gsub(",.*", ""):gsub("(%l)(%u)", "%1_%2"):lower()
end

for _, record in pairs(records) do
    record.filter = filter_of(record[1])
    define(record.filter, record[2])
    if record.tagged then
        define(record.filter, TAG_AND_WORD)
    end
    if record.bitmap then
        define(record.filter, BITMAP)
    end
end
define("frame", FRAME)
define("checksum", CHECKSUM)
define("bulk", BULK)
define("hello", HELLO)
define("hello", ENDPOINT_ID)
define("seal", SEAL)
define("ethernet", ENDPOINTS)
define("liveness", LIVENESS)
define("greeting", GREETING)
define("part", LENGTHS)
define("connection", CONNECTION)
define("multicast", MULTICAST)

local payload_field = ProtoField.bytes("portolan.payload", "Payload")
local encrypted_field = ProtoField.bytes("portolan.encrypted", "Encrypted")
local padding_field = ProtoField.bytes("portolan.padding", "Padding")
local unused_field = ProtoField.bytes("portolan.unused", "Unused")
local trailer_field = ProtoField.bytes("portolan.trailer", "Ignored behind the frame")
local unknown_field = ProtoField.bytes("portolan.unknown", "Unknown")
local rank_field = ProtoField.uint32("portolan.sender", "Sender's rank, or number with the receiver")
for _, field in ipairs({ payload_field, encrypted_field, padding_field, unused_field, trailer_field, unknown_field, rank_field }) do
    all_fields[#all_fields + 1] = field
end
portolan.fields = all_fields

local malformed = ProtoExpert.new("portolan.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
local retransmitted =
    ProtoExpert.new("portolan.retransmission", "Retransmission", expert.group.SEQUENCE, expert.severity.NOTE)
portolan.experts = { malformed, retransmitted }

-- Adds a field of uninterpreted bytes, unless it would be empty.
local function add_bytes(tree, field, tvb, from, to)
    if to > from then
        tree:add(field, tvb(from, to - from))
    end
end

local function number_at(tvb, at, len, big)
    local range = tvb(at, len)
    if len == 8 then
        return range:le_uint64()
    end
    return big and range:uint() or range:le_uint()
end

local function bit_value(byte, mask)
    local value = 0
    local place = 1
    for bit = 0, 7 do
        local weight = 2 ^ bit
        if math.floor(mask / weight) % 2 == 1 then
            value = value + (math.floor(byte / weight) % 2) * place
            place = place * 2
        end
    end
    return value
end

-- Adds the flags of a byte. Returns false if an unknown one is set.
local function add_bits(tree, mine, entry, tvb, at, values)
    local byte, known = tvb(at, 1):uint(), 0
    for _, bit in ipairs(entry.bits) do
        tree:add(mine[bit[1]], tvb(at, 1))
        values[bit[1]] = bit_value(byte, bit[2])
        known = known + bit[2]
    end
    return bit_value(byte, 255 - known) == 0
end

-- Adds one field. Returns false if its value is not permitted.
local function add_entry(tree, mine, entry, tvb, at, values)
    local name, len = entry[1], entry[2]
    if not name or (entry.unless and values[entry.unless] == 0) then
        tree:add(unused_field, tvb(at, len))
        return true
    end
    if entry.bits then
        return add_bits(tree, mine, entry, tvb, at, values)
    end
    local add = (entry.bytes or entry.big) and tree.add or tree.add_le
    local item = add(tree, mine[name], tvb(at, len))
    if entry.bytes then
        return true
    end
    if entry.shown then
        item:append_text(" (" .. entry.shown .. ")")
    end
    values[name] = number_at(tvb, at, len, entry.big)
    return not entry.only or entry.values[values[name]] ~= nil
end

-- Adds the fields of a layout from offset `at`. Returns their values, the offset behind them, and
-- false if a value is not permitted.
local function add_layout(tree, name, layout, tvb, at)
    local values, is_valid = {}, true
    for _, entry in ipairs(layout) do
        is_valid = add_entry(tree, fields_of[name], entry, tvb, at, values) and is_valid
        at = at + entry[2]
    end
    return values, at, is_valid
end

local function len_of(layout)
    local len = 0
    for _, entry in ipairs(layout) do
        len = len + entry[2]
    end
    return len
end

-- Marks the rest up to `to` as malformed.
local function fail(tree, tvb, at, to, why)
    tree:add_proto_expert_info(malformed, why)
    add_bytes(tree, unknown_field, tvb, at, to)
    return to
end

-- Adds what follows the fixed header of a record: match bits, or an acknowledgement's bitmap.
-- Returns the offset behind it; nil if it does not fit.
local function add_variable(tree, record, values, tvb, at, to)
    if record.tagged then
        local layout = values.form == 1 and TAG_AND_WORD or TAG
        if at + len_of(layout) > to then
            return nil
        end
        local _, behind = add_layout(tree, record.filter, layout, tvb, at)
        return behind
    end
    for _ = 1, record.bitmap and values[record.bitmap] or 0 do
        if at + 8 > to then
            return nil
        end
        add_layout(tree, record.filter, BITMAP, tvb, at)
        at = at + 8
    end
    return at
end

local SUMMARY = { "port", "tag", "seq", "len", "message_len", "base", "limit", "num", "received", "op", "nonce" }

local function summary_of(record, values)
    local words = { record[1] }
    for _, name in ipairs(SUMMARY) do
        if values[name] then
            words[#words + 1] = name .. "=" .. tostring(values[name])
        end
    end
    return table.concat(words, " ")
end

-- Dissects one record between `at` and `to`. In a part of a stream the payload is elsewhere.
-- Returns the offset behind the record, and its summary.
local function add_record(tree, tvb, at, to, in_part)
    local record = records[tvb(at, 1):uint()]
    if not record then
        return fail(tree, tvb, at, to, "unknown record kind " .. tvb(at, 1):uint())
    end
    local fixed_len = len_of(record[2])
    if to - at < math.max(fixed_len, RECORD_LEN_MIN) then
        return fail(tree, tvb, at, to, "truncated " .. record[1])
    end
    local sub = tree:add(portolan, tvb(at, fixed_len), record[1])
    local values, behind, is_valid = add_layout(sub, record.filter, record[2], tvb, at)
    local summary = summary_of(record, values)
    sub:set_text(summary)
    if not is_valid or (record.check and not record.check(values)) then
        return fail(sub, tvb, behind, to, "a field is out of range"), summary
    end
    local payload_at = add_variable(sub, record, values, tvb, behind, to)
    if not payload_at then
        return fail(sub, tvb, behind, to, "truncated " .. record[1]), summary
    end
    local payload_len = 0
    if record.payload == "rest" then
        payload_len = to - payload_at
    elseif record.payload then
        payload_len = values[record.payload]
    end
    if in_part then
        payload_len = 0
    end
    if payload_at + payload_len > to then
        return fail(sub, tvb, payload_at, to, "length field contradicts the bytes received"), summary
    end
    add_bytes(sub, payload_field, tvb, payload_at, payload_at + payload_len)
    sub:set_len(payload_at + payload_len - at)
    return payload_at + payload_len, summary
end

-- Dissects records up to `to`. Returns their summaries. P1.5
local function add_records(tree, tvb, at, to, in_part)
    local summaries = {}
    while at < to do
        if tvb(at, 1):uint() == 0 then
            add_bytes(tree, padding_field, tvb, at, to)
            break
        end
        at, summaries[#summaries + 1] = add_record(tree, tvb, at, to, in_part)
    end
    return table.concat(summaries, ", ")
end

-- Dissects a handshake behind the frame header. Returns the offset behind it.
local function add_hello(tree, tvb, at, to)
    if to - at < HELLO_LEN then
        return fail(tree, tvb, at, to, "truncated hello"), ""
    end
    local sub = tree:add(portolan, tvb(at, HELLO_LEN), "Hello")
    local values, behind = add_layout(sub, "hello", HELLO, tvb, at)
    if tvb(at, 16):string() == OPEN_JOB_ID then
        if to - behind < ENDPOINT_ID_LEN then
            return fail(sub, tvb, behind, to, "truncated endpoint id"), ""
        end
        local _, end_of_id = add_layout(sub, "hello", ENDPOINT_ID, tvb, behind)
        behind = end_of_id
    end
    return behind, string.format("from %d to %d", values.from, values.to)
end

-- Dissects the contents of a frame that is not sealed. Returns a summary.
local function add_contents(tree, kind, tvb, at, to)
    if kind == "Data" or kind == "Unnumbered" then
        return add_records(tree, tvb, at, to)
    end
    local summary = ""
    if kind == "Bulk" then
        if to - at < len_of(BULK) then
            fail(tree, tvb, at, to, "truncated bulk header")
            return ""
        end
        local values, behind = add_layout(tree, "bulk", BULK, tvb, at)
        add_bytes(tree, payload_field, tvb, behind, to)
        return string.format("transfer=0x%x fragment=%d len=%d", values.transfer, values.fragment_index, to - behind)
    elseif kind == "Hello" or kind == "HelloAck" then
        at, summary = add_hello(tree, tvb, at, to)
    end
    add_bytes(tree, trailer_field, tvb, at, to)
    return summary
end

-- Dissects the encrypted contents of a frame. Returns a summary.
local function add_sealed(tree, tvb, at, to)
    if to - at < SEAL_LEN then
        fail(tree, tvb, at, to, "truncated seal")
        return ""
    end
    add_bytes(tree, encrypted_field, tvb, at, to - SEAL_LEN)
    local sub = tree:add(portolan, tvb(to - SEAL_LEN, SEAL_LEN), "Seal")
    local values = add_layout(sub, "seal", SEAL, tvb, to - SEAL_LEN)
    return string.format("sealed, generation=%d count=%d", values.generation, values.count)
end

-- Returns the length of the frame at `at` with its checksum header; nil if there is no valid frame
-- header.
local function frame_len_at(tvb, at, to)
    if to - at < FRAME_HEADER_LEN then
        return nil
    end
    local front_len = 0
    if tvb(at, 1):uint() == VERSION * 16 + 7 then
        front_len = CHECK_LEN
        if to - at < CHECK_LEN + FRAME_HEADER_LEN or tvb(at + CHECK_LEN + 1, 1):uint() < 0x80 then
            return nil
        end
    end
    local first, len = tvb(at + front_len, 1):uint(), tvb(at + front_len + 2, 2):le_uint()
    local kind = first % 16
    local is_known = FRAME_KINDS[kind] or SEALED_KINDS[kind]
    if math.floor(first / 16) ~= VERSION or not is_known or len < FRAME_HEADER_LEN or at + front_len + len > to then
        return nil
    end
    return front_len + len
end

-- Dissects the frame at `at`, whose header is valid. Returns the offset behind it and a summary.
local function add_frame(tree, tvb, at, len)
    local to = at + len
    local sub = tree:add(portolan, tvb(at, len))
    if tvb(at, 1):uint() % 16 == 7 then
        local front = sub:add(portolan, tvb(at, CHECK_LEN), "Checksum")
        local _, behind = add_layout(front, "checksum", CHECKSUM, tvb, at)
        at = behind
    end
    local first = tvb(at, 1):uint() % 16
    local values, behind = add_layout(sub, "frame", FRAME, tvb, at)
    local kind = FRAME_KINDS[first] or SEALED_KINDS[first]
    if kind ~= "Hello" and kind ~= "HelloAck" then
        sub:add(rank_field, tvb(at + 8, 8), tvb(at + 8, 4):le_uint() % 0x100000):set_generated()
    end
    if values.attempt > 0 then
        sub:add_proto_expert_info(retransmitted, "attempt " .. values.attempt)
    end
    local add = SEALED_KINDS[first] and add_sealed or function(...)
        return add_contents(sub, kind, select(2, ...))
    end
    local summary = add(sub, tvb, behind, to)
    local numbered = kind == "Data" or kind == "Bulk"
    local name = numbered and string.format("%s %d", kind, values.packet_num) or kind
    sub:set_text("Portolan " .. name)
    return to, summary == "" and name or string.format("%s [%s]", name, summary)
end

-- Dissects consecutive frames: a capture may hold the datagrams of one system call as one. Returns
-- the offset behind the last one and a summary.
local function add_frames(tree, tvb, at, to)
    local summaries = {}
    while at < to do
        local len = frame_len_at(tvb, at, to)
        if not len then
            break
        end
        at, summaries[#summaries + 1] = add_frame(tree, tvb, at, len)
    end
    return at, table.concat(summaries, "; ")
end

local function describe(pinfo, summary)
    pinfo.cols.protocol = "Portolan"
    pinfo.cols.info = summary
end

-- Returns true if the bytes are frames without a gap, as senders write datagrams.
local function are_frames(tvb)
    local at, to = 0, tvb:len()
    while at < to do
        local len = frame_len_at(tvb, at, to)
        if not len then
            return false
        end
        at = at + len
    end
    return to > 0
end

local function add_liveness(tvb, pinfo, tree)
    local sub = tree:add(portolan, tvb(0, LIVENESS_LEN), "Portolan liveness")
    local values = add_layout(sub, "liveness", LIVENESS, tvb, 0)
    local kind = values.kind == 1 and "query" or "answer"
    describe(pinfo, string.format("Liveness %s from %d to %d", kind, values.from, values.to))
end

local function is_multicast(tvb, pinfo)
    local to_group = tostring(pinfo.dst):match("^239%.255%.") and pinfo.dst_port >= 20000 and pinfo.dst_port < 32000
    return to_group and tvb:len() >= MULTICAST_HEADER_LEN + MULTICAST_TAG_LEN and tvb(23, 1):uint() <= 8
end

local function add_multicast(tvb, pinfo, tree)
    local sub = tree:add(portolan, tvb(), "Portolan multicast")
    local values, behind = add_layout(sub, "multicast", MULTICAST, tvb, 0)
    add_bytes(sub, encrypted_field, tvb, behind, tvb:len())
    describe(pinfo, string.format("Multicast %s block %d", tostring(values.serial), values.block))
end

-- A datagram, if it is one of Portolan's.
local function dissect_datagram(tvb, pinfo, tree)
    if tvb:len() == LIVENESS_LEN and tvb(0, 4):string() == "PtL1" then
        add_liveness(tvb, pinfo, tree)
    elseif is_multicast(tvb, pinfo) then
        add_multicast(tvb, pinfo, tree)
    elseif are_frames(tvb) then
        local _, summary = add_frames(tree, tvb, 0, tvb:len())
        describe(pinfo, summary)
    else
        return false
    end
    return true
end

function portolan.dissector(tvb, pinfo, tree)
    if dissect_datagram(tvb, pinfo, tree) then
        return tvb:len()
    end
    return 0
end

local eth_source = Field.new("eth.src")

local function is_invented(source)
    return source and tostring(source.range:bytes()):match("^020[01]") ~= nil
end

-- An Ethernet frame of EtherType 0x88B5. Captures of links within a host have no endpoints and
-- consist of records; their addresses are invented (`core/link/src/pcap.rs`).
function on_ethernet.dissector(tvb, pinfo, tree)
    local head_len = len_of(ENDPOINTS)
    if tvb:len() < head_len then
        return 0
    end
    local sub = tree:add(portolan, tvb(), "Portolan on Ethernet")
    local values, at = add_layout(sub, "ethernet", ENDPOINTS, tvb, 0)
    local is_lossless = values.from == 0 and values.to == 0 and is_invented(eth_source())
    if is_lossless then
        describe(pinfo, add_records(sub, tvb, at, tvb:len()))
        return tvb:len()
    end
    local behind, summary = at, "malformed"
    local len = frame_len_at(tvb, at, tvb:len())
    if len then
        behind, summary = add_frame(sub, tvb, at, len)
        add_bytes(sub, trailer_field, tvb, behind, tvb:len())
    else
        fail(sub, tvb, at, tvb:len(), "no valid frame header")
    end
    describe(pinfo, summary)
    return tvb:len()
end

local function is_greeting(tvb, at)
    return tvb:len() - at >= 4 and tvb(at, 4):string() == "PSTR"
end

local function is_connection(tvb, at)
    return tvb:len() - at >= 4 and tvb(at, 4):string() == "PCON"
end

-- Returns the length of the message at `at` of a TCP connection.
local function tcp_len(tvb, _, at)
    if is_greeting(tvb, at) then
        return GREETING_LEN
    elseif is_connection(tvb, at) then
        return CONNECTION_HEAD_LEN + tvb(at + 6, 2):le_uint()
    end
    return FRONT_LEN + tvb(at + 4, 4):le_uint()
end

-- A part of a message on a stream. P15
local function add_part(tvb, pinfo, tree)
    local sub = tree:add(portolan, tvb(), "Portolan part")
    local values, at = add_layout(sub, "part", LENGTHS, tvb, 0)
    local head_to = at + values.head_len
    if head_to > FRONT_LEN then
        fail(sub, tvb, at, tvb:len(), "the head is longer than the front")
        return
    end
    if values.head_len >= CHECK_LEN and tvb(at, 1):uint() == VERSION * 16 + 7 then
        local front = sub:add(portolan, tvb(at, CHECK_LEN), "Checksum")
        local _, behind = add_layout(front, "checksum", CHECKSUM, tvb, at)
        at = behind
    end
    local summary = add_records(sub, tvb, at, head_to, true)
    add_bytes(sub, padding_field, tvb, head_to, FRONT_LEN)
    add_bytes(sub, payload_field, tvb, FRONT_LEN, tvb:len())
    describe(pinfo, string.format("Part of %d bytes [%s]", values.payload_len, summary))
end

-- One whole message of a TCP connection.
local function add_tcp(tvb, pinfo, tree)
    if is_greeting(tvb, 0) then
        add_layout(tree:add(portolan, tvb(), "Portolan greeting"), "greeting", GREETING, tvb, 0)
        describe(pinfo, "Greeting")
    elseif is_connection(tvb, 0) then
        local sub = tree:add(portolan, tvb(), "Portolan connection message")
        local _, behind = add_layout(sub, "connection", CONNECTION, tvb, 0)
        add_bytes(sub, payload_field, tvb, behind, tvb:len())
        describe(pinfo, "Connection message")
    else
        add_part(tvb, pinfo, tree)
    end
    return tvb:len()
end

function on_tcp.dissector(tvb, pinfo, tree)
    dissect_tcp_pdus(tvb, tree, LENGTHS_LEN, tcp_len, add_tcp)
    return tvb:len()
end

DissectorTable.get("ethertype"):add(0x88B5, on_ethernet)
portolan:register_heuristic("udp", dissect_datagram)
on_tcp:register_heuristic("tcp", function(tvb, pinfo, tree)
    if not is_greeting(tvb, 0) and not is_connection(tvb, 0) then
        return false
    end
    pinfo.conversation = on_tcp
    on_tcp.dissector(tvb, pinfo, tree)
    return true
end)
