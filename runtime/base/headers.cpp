// Nothing but the headers of the standard library that most sources include: read once for all (CMakeLists.txt).
