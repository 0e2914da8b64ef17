//! Positions: members of sorted sets, distances and searches.

use crate::client::Served;

const SYNTAX: &str = "-ERR syntax error";
const ADD: &str = "GEOADD sicily 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";

#[test]
fn positions_are_scores_of_members() {
    let served = Served::start();
    let mut client = served.client();
    client.check(&[
        (ADD, ":2"),
        ("GEOADD sicily NX CH 1 2 Palermo 13.583333 37.316667 Agrigento", ":1"),
        ("GEOADD sicily XX CH 13.583333 37.3 Agrigento 1 1 none", ":1"),
        ("ZSCORE sicily Palermo", "\"3479099956230698\""),
        ("GEODIST sicily Palermo Catania", "\"166274.1516\""),
        ("GEODIST sicily Palermo Catania km", "\"166.2742\""),
        ("GEODIST sicily Palermo Catania MI", "\"103.3182\""),
        ("GEODIST sicily Palermo none", "nil"),
        ("GEODIST none a b", "nil"),
        ("GEOHASH sicily Palermo none Catania", "[\"sqc8b49rny0\" nil \"sqdtr74hyu0\"]"),
        ("GEOHASH none", "[]"),
        ("GEOPOS sicily Palermo none", "[[\"13.36138933897018433\" \"38.11555639549629859\"] nil]"),
        ("GEOPOS none a", "[nil]"),
        ("TYPE sicily", "+zset"),
    ]);
    client.line("HELLO 3");
    client.check(&[("GEOPOS sicily Palermo", "[[,13.36138933897018433 ,38.11555639549629859]]")]);
}

#[test]
fn areas_are_searched() {
    Served::start().check(&[
        (ADD, ":2"),
        ("GEOADD sicily 12.758489 38.788135 edge1 17.241510 38.788135 edge2", ":2"),
        ("GEOSEARCH sicily FROMLONLAT 15 37 BYRADIUS 200 km ASC", "[\"Catania\" \"Palermo\"]"),
        (
            "GEOSEARCH sicily FROMLONLAT 15 37 BYBOX 400 400 km DESC WITHDIST COUNT 2",
            "[[\"edge1\" \"279.7405\"] [\"edge2\" \"279.7403\"]]",
        ),
        (
            "GEOSEARCH sicily FROMMEMBER Palermo BYRADIUS 0 m WITHCOORD WITHHASH WITHDIST",
            "[[\"Palermo\" \"0.0000\" :3479099956230698 [\"13.36138933897018433\" \"38.11555639549629859\"]]]",
        ),
        ("GEORADIUS sicily 15 37 200 km COUNT 1", "[\"Catania\"]"),
        ("GEORADIUS_RO sicily 15 37 100 km", "[\"Catania\"]"),
        ("GEORADIUSBYMEMBER sicily Palermo 100 mi ASC", "[\"Palermo\" \"edge1\"]"),
        ("GEORADIUSBYMEMBER_RO sicily Palermo 1 ft", "[\"Palermo\"]"),
        ("GEOSEARCHSTORE to sicily FROMLONLAT 15 37 BYRADIUS 200 km", ":2"),
        ("GEODIST to Palermo Catania", "\"166274.1516\""),
        ("GEOSEARCHSTORE to sicily FROMLONLAT 15 37 BYRADIUS 200 km STOREDIST COUNT 1", ":1"),
        ("ZRANGEBYSCORE to 56.4 56.5", "[\"Catania\"]"),
        ("GEORADIUS sicily 15 37 200 km STORE to", ":2"),
        ("GEORADIUSBYMEMBER sicily Palermo 1 km STOREDIST to", ":1"),
        ("ZRANGE to 0 -1 WITHSCORES", "[\"Palermo\" \"0\"]"),
        ("GEOSEARCHSTORE to sicily FROMLONLAT 0 0 BYRADIUS 1 m", ":0"),
        ("EXISTS to", ":0"),
        ("GEOSEARCH none FROMMEMBER a BYRADIUS 1 m", "[]"),
        ("GEOADD date 179.9 1 east -179.9 1 west 180 1 line", ":3"),
        ("GEOSEARCH date FROMLONLAT 179.94 1 BYRADIUS 20 km ASC", "[\"east\" \"line\" \"west\"]"),
    ]);
}

#[test]
fn refused_searches_write_nothing() {
    Served::start().check(&[
        ("GEOADD g 181 0 a", "-ERR invalid longitude,latitude pair 181.000000,0.000000"),
        ("GEOADD g 0 86 a", "-ERR invalid longitude,latitude pair 0.000000,86.000000"),
        ("GEOADD g x 0 a", "-ERR value is not a valid float"),
        ("GEOADD g NX XX 1 1 a", SYNTAX),
        ("GEOADD g 1 1 a 2", SYNTAX),
        ("EXISTS g", ":0"),
        ("GEOADD g 1 1 a", ":1"),
        ("GEODIST g a a yd", "-ERR unsupported unit provided. please use M, KM, FT, MI"),
        ("GEODIST g a a m m", SYNTAX),
        ("GEOSEARCH g FROMMEMBER x BYRADIUS 1 m", "-ERR could not decode requested zset member"),
        ("GEOSEARCH g FROMMEMBER a BYRADIUS -1 m", "-ERR radius cannot be negative"),
        ("GEOSEARCH g FROMMEMBER a BYRADIUS x m", "-ERR need numeric radius"),
        ("GEOSEARCH g FROMMEMBER a BYBOX 1 -1 m", "-ERR height or width cannot be negative"),
        ("GEOSEARCH g FROMMEMBER a FROMLONLAT 1 1 BYRADIUS 1 m", SYNTAX),
        ("GEOSEARCH g FROMMEMBER a BYRADIUS 1 m BYBOX 1 1 m", SYNTAX),
        ("GEOSEARCH g FROMMEMBER a BYRADIUS 1 m COUNT 0", "-ERR COUNT must be > 0"),
        ("GEOSEARCH g FROMMEMBER a BYRADIUS 1 m ANY", "-ERR the ANY argument requires COUNT argument"),
        ("GEOSEARCH g FROMMEMBER a BYRADIUS 1 m STORE to", SYNTAX),
        (
            "GEOSEARCH g FROMMEMBER a ASC DESC ASC",
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH g BYRADIUS 1 m ASC DESC",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
        ),
        ("GEORADIUS_RO g 1 1 1 m STORE to", SYNTAX),
        (
            "GEORADIUS g 1 1 1 m STORE to WITHDIST",
            "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
        ("SET str 1", "+OK"),
        ("GEOPOS str a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        (
            "GEOSEARCHSTORE to str FROMLONLAT 1 1 BYRADIUS 1 m",
            "-WRONGTYPE Operation against a key holding the wrong kind of value",
        ),
        ("EXISTS to", ":0"),
    ]);
}
