# Writes a manual page for each command that the program names, as the program prints it.
#   cmake -D PROGRAM=… -D FOLDER=… -P manual.cmake
find_program(GZIP gzip REQUIRED)

function(run out)
  execute_process(COMMAND ${PROGRAM} ${ARGN} OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

function(write_page)
  list(JOIN ARGN "-" name)
  list(PREPEND name mooncaf)
  list(JOIN name "-" name)
  execute_process(COMMAND ${PROGRAM} ${ARGN} --help=man COMMAND ${GZIP} -9n OUTPUT_FILE ${FOLDER}/${name}.1.gz
                  COMMAND_ERROR_IS_FATAL ANY)
  run(words ${ARGN} --help=words)
  string(REPLACE "\n" ";" words "${words}")
  foreach(word ${words})
    if(word MATCHES "^[a-z][a-z-]*$" AND NOT word STREQUAL topology)  # that one has the server's options
      write_page(${ARGN} ${word})
    endif()
  endforeach()
endfunction()

file(MAKE_DIRECTORY ${FOLDER})
write_page()
